package gpus

import (
	"os"
	"strconv"
	"strings"
)

// VisibleVariable is how the device plugin tells a container's runtime which devices it gets.
const VisibleVariable = "NVIDIA_VISIBLE_DEVICES"

// Device is a GPU as one process sees it: with the compute instances that it may use.
type Device struct {
	*GPU
	MIGDevices []MIGDevice
}

// MIGDevice is a compute instance within its GPU instance.
type MIGDevice struct {
	Instance Instance
	Compute  ComputeInstance
}

// Visible returns what this process sees: everything on the host, the chosen devices in a container.
func (s *State) Visible() []Device {
	if s.isHost {
		return s.choose("all")
	}
	return s.choose(os.Getenv(VisibleVariable))
}

func (s *State) choose(variable string) (devices []Device) {
	chosen := map[string]bool{}
	for word := range strings.SplitSeq(variable, ",") {
		chosen[word] = true
	}
	for _, gpu := range s.GPUs {
		whole := chosen["all"] || chosen[gpu.UUID] || chosen[strconv.Itoa(gpu.Index)]
		device := Device{GPU: gpu}
		for _, instance := range gpu.Instances {
			for _, compute := range instance.Compute {
				if whole || chosen[compute.UUID] {
					device.MIGDevices = append(device.MIGDevices, MIGDevice{instance, compute})
				}
			}
		}
		if whole || len(device.MIGDevices) > 0 {
			devices = append(devices, device)
		}
	}
	return devices
}

// VisibleUUIDs returns what a CUDA program in this process would open: MIG devices where MIG is on.
func (s *State) VisibleUUIDs() (uuids []string) {
	for _, device := range s.Visible() {
		if !device.MIG {
			uuids = append(uuids, device.UUID)
		}
		for _, mig := range device.MIGDevices {
			uuids = append(uuids, mig.Compute.UUID)
		}
	}
	return uuids
}
