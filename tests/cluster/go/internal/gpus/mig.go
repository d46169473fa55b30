package gpus

import (
	"crypto/sha1"
	"fmt"
	"slices"
	"sort"
)

// Code is an NVML return value; nvidia-smi's exit status repeats it.
type Code int

// The NVML return values that this stand-in knows.
const (
	OK                    Code = 0
	InvalidArgument       Code = 2
	NotSupported          Code = 3
	NoPermission          Code = 4
	NotFound              Code = 6
	InUse                 Code = 19
	InsufficientResources Code = 23
	Unknown               Code = 255
)

// String is NVML's own sentence.
func (c Code) String() string {
	switch c {
	case OK:
		return "Success"
	case InvalidArgument:
		return "Invalid Argument"
	case NotSupported:
		return "Not Supported"
	case NoPermission:
		return "Insufficient Permissions"
	case NotFound:
		return "Not Found"
	case InUse:
		return "In use by another client"
	case InsufficientResources:
		return "Insufficient Resources"
	default:
		return "Unknown Error"
	}
}

// CanMIG says whether the model has GPU instances at all.
func (g *GPU) CanMIG() bool { return len(g.Profiles) > 0 }

// Profile finds a profile by its id.
func (g *GPU) Profile(id int) (Profile, bool) {
	for _, profile := range g.Profiles {
		if profile.ID == id {
			return profile, true
		}
	}
	return Profile{}, false
}

// ProfileNamed finds a profile by its name.
func (g *GPU) ProfileNamed(name string) (Profile, bool) {
	for _, profile := range g.Profiles {
		if profile.Name == name {
			return profile, true
		}
	}
	return Profile{}, false
}

// Of returns the profile of an instance, which is always in the table.
func (g *GPU) Of(instance Instance) Profile {
	profile, _ := g.ProfileNamed(instance.Profile)
	return profile
}

// Instance finds a GPU instance by its id.
func (g *GPU) Instance(id int) (*Instance, bool) {
	for i := range g.Instances {
		if g.Instances[i].ID == id {
			return &g.Instances[i], true
		}
	}
	return nil, false
}

func (g *GPU) isFree(profile Profile, start int) bool {
	for _, instance := range g.Instances {
		size := g.Of(instance).MemorySlices
		if start < instance.Start+size && instance.Start < start+profile.MemorySlices {
			return false
		}
	}
	return true
}

// hasRoom checks what placements do not say: the profile's own maximum and the media engines.
func (g *GPU) hasRoom(profile Profile, more int) bool {
	count, used := 0, Engines{}
	for _, instance := range g.Instances {
		other := g.Of(instance)
		if other.ID == profile.ID {
			count++
		}
		used.DEC += other.DEC
		used.ENC += other.ENC
		used.JPEG += other.JPEG
		used.OFA += other.OFA
	}
	return count+more <= profile.MaxInstances &&
		used.DEC+more*profile.DEC <= g.Engines.DEC && used.ENC+more*profile.ENC <= g.Engines.ENC &&
		used.JPEG+more*profile.JPEG <= g.Engines.JPEG && used.OFA+more*profile.OFA <= g.Engines.OFA
}

// Free returns how many more instances of the profile fit now.
func (g *GPU) Free(profile Profile) int {
	count, end := 0, 0
	for _, start := range profile.Starts {
		if start >= end && g.isFree(profile, start) {
			count++
			end = start + profile.MemorySlices
		}
	}
	for count > 0 && !g.hasRoom(profile, count) {
		count--
	}
	return count
}

// Create makes a GPU instance, at start or, if that is negative, where the driver likes: last first,
// as real drivers are seen to do with small profiles.
func (g *GPU) Create(profile Profile, start int) (*Instance, Code) {
	if start >= 0 && !slices.Contains(profile.Starts, start) {
		return nil, InvalidArgument
	}
	if !g.hasRoom(profile, 1) {
		return nil, InsufficientResources
	}
	for i := len(profile.Starts) - 1; start < 0 && i >= 0; i-- {
		if g.isFree(profile, profile.Starts[i]) {
			start = profile.Starts[i]
		}
	}
	if start < 0 || !g.isFree(profile, start) {
		return nil, InsufficientResources
	}
	instance := Instance{ID: g.freeID(profile), Profile: profile.Name, Start: start, Compute: []ComputeInstance{}}
	g.Instances = append(g.Instances, instance)
	sort.Slice(g.Instances, func(i, j int) bool { return g.Instances[i].ID < g.Instances[j].ID })
	created, _ := g.Instance(instance.ID)
	return created, OK
}

// freeID gives ids by size as drivers do: 0 for a whole GPU, 1 and 2 for halves, 3 to 6 for quarters, 7 on.
func (g *GPU) freeID(profile Profile) int {
	id := 0
	for part := g.MemorySlices; part/2 >= profile.MemorySlices; part /= 2 {
		id = 2*id + 1
	}
	for {
		if _, taken := g.Instance(id); !taken {
			return id
		}
		id++
	}
}

// CreateCompute makes a compute instance of some slices; 0 means all that the GPU instance has.
func (g *GPU) CreateCompute(instance *Instance, wanted int) (*ComputeInstance, Code) {
	profile := g.Of(*instance)
	if wanted == 0 {
		wanted = profile.ComputeSlices
	}
	start, id := 0, 0
	for _, compute := range instance.Compute {
		start = max(start, compute.Start+compute.Slices)
		id = max(id, compute.ID+1)
	}
	if wanted > profile.ComputeSlices {
		return nil, InvalidArgument
	}
	if start+wanted > profile.ComputeSlices {
		return nil, InsufficientResources
	}
	instance.Compute = append(instance.Compute, ComputeInstance{
		ID: id, Slices: wanted, Start: start, UUID: g.migUUID(*instance, id),
	})
	return &instance.Compute[len(instance.Compute)-1], OK
}

// migUUID names a compute instance by what it is, so that the same cut has the same UUID again: a
// version 5 UUID, as real ones are.
func (g *GPU) migUUID(instance Instance, compute int) string {
	name := fmt.Sprintf("%s/%s@%d/%d/%d", g.UUID, instance.Profile, instance.Start, instance.ID, compute)
	sum := sha1.Sum([]byte(name))
	sum[6] = sum[6]&0x0f | 0x50
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("MIG-%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// ComputeProfileID is the id of a compute instance profile, which counts by slices.
func ComputeProfileID(slices int) int {
	if slices == 7 {
		return 4
	}
	return slices - 1
}

// ComputeName is a compute instance's name, such as `3g.20gb` or `1c.3g.20gb`.
func (g *GPU) ComputeName(instance Instance, slices int) string {
	if slices == g.Of(instance).ComputeSlices {
		return instance.Profile
	}
	return fmt.Sprintf("%dc.%s", slices, instance.Profile)
}

// Destroy removes an empty GPU instance.
func (s *State) Destroy(gpu *GPU, id int) Code {
	instance, ok := gpu.Instance(id)
	if !ok {
		return NotFound
	}
	if len(instance.Compute) > 0 {
		return InUse
	}
	gpu.Instances = slices.DeleteFunc(gpu.Instances, func(i Instance) bool { return i.ID == id })
	return OK
}

// DestroyCompute removes a compute instance that no process holds.
func (s *State) DestroyCompute(instance *Instance, id int) Code {
	index := slices.IndexFunc(instance.Compute, func(c ComputeInstance) bool { return c.ID == id })
	if index < 0 {
		return NotFound
	}
	if s.InUse(instance.Compute[index].UUID) {
		return InUse
	}
	instance.Compute = slices.Delete(instance.Compute, index, index+1)
	return OK
}

// SwitchMIG asks for MIG mode on or off; pending says that it waits for a reset, and why.
func (s *State) SwitchMIG(gpu *GPU, on bool) (pending bool, code Code) {
	if !gpu.CanMIG() {
		return false, NotSupported
	}
	if gpu.MIG == on {
		gpu.PendingMIG = on
		return false, OK
	}
	if len(gpu.Instances) > 0 {
		return false, InUse
	}
	gpu.PendingMIG = on
	if s.GPUInUse(gpu) {
		return true, InUse
	}
	if gpu.ModeNeedsReset {
		return true, NotSupported
	}
	gpu.MIG = on
	return false, OK
}

// Reset takes a pending MIG mode into force and forgets all instances.
func (s *State) Reset(gpu *GPU) Code {
	if s.GPUInUse(gpu) {
		return InUse
	}
	if gpu.CanMIG() {
		gpu.MIG = gpu.PendingMIG
	}
	gpu.Instances = []Instance{}
	return OK
}
