// Package gpus is the hardware of a lab node: GPUs, MIG mode and instances in one JSON file.
//
// The file stands for what a real node's driver knows. `nvidia-smi` changes it, the device plugin
// reads it when it starts, tests edit it. Writers hold an exclusive lock and replace the file in one
// rename, so readers need no lock and may have it mounted read-only.
package gpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// HostDirectory holds the state on a lab node. Who sees it there stands on the host, as `chroot /host`
// does in a privileged Pod, and sees every GPU.
const HostDirectory = "/var/lib/kubelet/gpus"

// ContainerDirectory is where the device plugin has the state mounted, read-only, in a container that
// was given devices, as NVIDIA's runtime brings in driver files. Without it there is no driver at all.
const ContainerDirectory = "/run/standin-gpus"

// HostVariable names an environment variable that points at another host directory, for tests.
const HostVariable = "STANDIN_GPUS"

// ErrNoDriver says that there is no state where one is expected: no GPU reaches this container.
var ErrNoDriver = errors.New("no GPU state")

// Profile is one row of a model's GPU instance table; counts of engines as `mig -lgip` names them.
type Profile struct {
	Name          string `json:"name"`
	ID            int    `json:"id"`
	ComputeSlices int    `json:"compute_slices"`
	MemorySlices  int    `json:"memory_slices"`
	MemoryMiB     int    `json:"memory_mib"`
	MaxInstances  int    `json:"max_instances"`
	Starts        []int  `json:"starts"`
	SM            int    `json:"sm"`
	CE            int    `json:"ce"`
	DEC           int    `json:"dec"`
	ENC           int    `json:"enc"`
	JPEG          int    `json:"jpeg"`
	OFA           int    `json:"ofa"`
}

// Engines are the media engines that all instances of a GPU share out.
type Engines struct {
	DEC  int `json:"dec"`
	ENC  int `json:"enc"`
	JPEG int `json:"jpeg"`
	OFA  int `json:"ofa"`
}

// ComputeInstance is a part of a GPU instance's compute slices; its UUID is what CUDA programs name.
type ComputeInstance struct {
	ID     int    `json:"id"`
	Slices int    `json:"slices"`
	Start  int    `json:"start"`
	UUID   string `json:"uuid"`
}

// Instance is a GPU instance at its placement.
type Instance struct {
	ID      int               `json:"id"`
	Profile string            `json:"profile"`
	Start   int               `json:"start"`
	Compute []ComputeInstance `json:"compute"`
}

// GPU is one card: its model's facts and its present condition.
type GPU struct {
	UUID               string     `json:"uuid"`
	Name               string     `json:"name"`
	BusID              string     `json:"bus_id"`
	DeviceID           string     `json:"device_id"`
	ComputeCapability  string     `json:"compute_capability"`
	Family             string     `json:"family"`
	MemoryMiB          int        `json:"memory_mib"`
	MemorySlices       int        `json:"memory_slices"`
	ModeNeedsReset     bool       `json:"mode_needs_reset"`
	ModeSurvivesReboot bool       `json:"mode_survives_reboot"`
	Engines            Engines    `json:"engines"`
	Profiles           []Profile  `json:"profiles"`
	MIG                bool       `json:"mig"`
	PendingMIG         bool       `json:"mig_pending"`
	Instances          []Instance `json:"instances"`
	Index              int        `json:"-"`
}

// State is everything that the node's driver knows.
type State struct {
	DriverVersion string `json:"driver_version"`
	CUDAVersion   string `json:"cuda_version"`
	GPUs          []*GPU `json:"gpus"`

	directory string
	isHost    bool
}

// Place is where a process finds the state, and whether it stands on the host there.
type Place struct {
	Directory string
	IsHost    bool
}

// Find returns the state's place in this process's view.
func Find() Place {
	if directory := os.Getenv(HostVariable); directory != "" {
		return Place{directory, true}
	}
	if _, err := os.Stat(HostDirectory); err == nil {
		return Place{HostDirectory, true}
	}
	return Place{ContainerDirectory, false}
}

// Load reads the state; ErrNoDriver when there is none.
func Load(place Place) (*State, error) {
	directory := place.Directory
	text, err := os.ReadFile(filepath.Join(directory, "state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoDriver
	}
	if err != nil {
		return nil, err
	}
	state := &State{directory: directory, isHost: place.IsHost}
	if err := json.Unmarshal(text, state); err != nil {
		return nil, fmt.Errorf("%s/state.json is not the JSON that it should be: %w", directory, err)
	}
	for index, gpu := range state.GPUs {
		gpu.Index = index
	}
	return state, nil
}

// Lock takes the writers' lock until the process ends or release is called.
func Lock(directory string) (release func(), err error) {
	file, err := os.OpenFile(filepath.Join(directory, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	return func() { file.Close() }, nil
}

// Save replaces the state file and makes a client file for each UUID; the caller holds the lock.
func (s *State) Save() error {
	clients := filepath.Join(s.directory, "clients")
	if err := os.MkdirAll(clients, 0o755); err != nil {
		return err
	}
	for _, uuid := range s.uuids() {
		file, err := os.OpenFile(filepath.Join(clients, uuid), os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return err
		}
		file.Close()
	}
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	temporary := filepath.Join(s.directory, "state.json.new")
	if err := os.WriteFile(temporary, text, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(s.directory, "state.json"))
}

func (s *State) uuids() (uuids []string) {
	for _, gpu := range s.GPUs {
		uuids = append(uuids, gpu.UUID)
		for _, instance := range gpu.Instances {
			for _, compute := range instance.Compute {
				uuids = append(uuids, compute.UUID)
			}
		}
	}
	return uuids
}

// Hold marks a device as used by this process until it ends, as an open CUDA context does.
func Hold(directory, uuid string) error {
	file, err := os.Open(filepath.Join(directory, "clients", uuid))
	if err != nil {
		return err
	}
	return syscall.Flock(int(file.Fd()), syscall.LOCK_SH) // never closed: the kernel lets go at exit
}

// InUse says whether some process holds the device.
func (s *State) InUse(uuid string) bool {
	file, err := os.Open(filepath.Join(s.directory, "clients", uuid))
	if err != nil {
		return false
	}
	defer file.Close()
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// GPUInUse says whether some process holds the GPU or any of its compute instances.
func (s *State) GPUInUse(gpu *GPU) bool {
	if s.InUse(gpu.UUID) {
		return true
	}
	for _, instance := range gpu.Instances {
		if s.InstanceInUse(instance) {
			return true
		}
	}
	return false
}

// InstanceInUse says whether some process holds a compute instance of the GPU instance.
func (s *State) InstanceInUse(instance Instance) bool {
	for _, compute := range instance.Compute {
		if s.InUse(compute.UUID) {
			return true
		}
	}
	return false
}
