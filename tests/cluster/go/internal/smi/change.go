package smi

import (
	"fmt"
	"strconv"
	"strings"

	"slicedesk.example/cluster/internal/gpus"
)

func (c *command) switchMode(word string) gpus.Code {
	on := word == "1" || strings.EqualFold(word, "ENABLED")
	if !on && word != "0" && !strings.EqualFold(word, "DISABLED") {
		c.print("Invalid value for MIG mode: %s", word)
		return gpus.InvalidArgument
	}
	verb, done := "disable", "Disabled"
	if on {
		verb, done = "enable", "Enabled"
	}
	for _, device := range c.devices {
		pending, code := c.state.SwitchMIG(device.GPU, on)
		switch {
		case pending && code == gpus.InUse:
			c.print("Warning: MIG mode is in pending %s state for GPU %s:%s", verb, device.BusID, code)
			c.print("%s is currently being used by one or more other processes (e.g. CUDA application or a "+
				"monitoring application such as another instance of nvidia-smi). Please first kill all processes "+
				"using the device and retry the command or reboot the system to make MIG mode effective.", device.BusID)
		case pending:
			c.print("Warning: MIG mode is in pending %s state for GPU %s:%s", verb, device.BusID, code)
			c.print("Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU %s", device.BusID)
		case code == gpus.NotSupported:
			c.print("Unable to %s MIG Mode for GPU %s: %s", verb, device.BusID, code)
			c.print("Treating as warning and moving on.")
		case code != gpus.OK:
			c.print("Unable to %s MIG Mode for GPU %s: %s", verb, device.BusID, code)
			c.print("Terminating early due to previous errors.")
			return code
		default:
			c.print("%s MIG Mode for GPU %s", done, device.BusID)
		}
	}
	c.print("All done.")
	return gpus.OK
}

func (c *command) resetGPUs() gpus.Code {
	busy := 0
	for _, device := range c.devices {
		if c.state.GPUInUse(device.GPU) {
			if busy == 0 {
				c.print("The following GPUs could not be reset:")
			}
			c.print("  GPU %s: %s", device.BusID, gpus.InUse)
			busy++
		}
	}
	if busy > 0 {
		who, which := "1 device is", "this device"
		if busy > 1 {
			who, which = fmt.Sprintf("%d devices are", busy), "these devices"
		}
		c.print("\n%s currently being used by one or more other processes (e.g., Fabric Manager, CUDA "+
			"application, graphics application such as an X server, or a monitoring application such as another "+
			"instance of nvidia-smi). Please first kill all processes using %s and all compute "+
			"applications running in the system.", who, which)
		return gpus.Unknown
	}
	for _, device := range c.devices {
		c.state.Reset(device.GPU)
		c.print("GPU %s was successfully reset.", device.BusID)
	}
	c.print("All done.")
	return gpus.OK
}

// createInstances makes what `-cgi` lists, in order, and stops at the first that does not fit.
func (c *command) createInstances(list string) gpus.Code {
	for i, device := range c.migDevices() {
		for word := range strings.SplitSeq(list, ",") {
			code := c.createInstance(device, i, word)
			if code != gpus.OK {
				c.print("Unable to create a GPU instance on GPU %2d using profile %s: %s", i, word, code)
				c.print("Failed to create GPU instances: %s", code)
				return code
			}
		}
	}
	return gpus.OK
}

func (c *command) createInstance(gpu *gpus.GPU, index int, word string) gpus.Code {
	key, place, hasPlace := strings.Cut(word, ":")
	profile, ok := gpu.ProfileNamed(strings.TrimPrefix(key, "MIG "))
	if id, err := strconv.Atoi(key); err == nil {
		profile, ok = gpu.Profile(id)
	}
	start := -1
	if hasPlace {
		var err error
		if start, err = strconv.Atoi(place); err != nil || start < 0 {
			return gpus.InvalidArgument
		}
	}
	if !ok {
		return gpus.InvalidArgument
	}
	instance, code := gpu.Create(profile, start)
	if code != gpus.OK {
		return code
	}
	c.print("Successfully created GPU instance ID %2d on GPU %2d using profile MIG %s (ID %2d)",
		instance.ID, index, profile.Name, profile.ID)
	if c.options.withCompute {
		return c.createComputeInstance(gpu, index, instance, 0)
	}
	return gpus.OK
}

func (c *command) createComputeInstance(gpu *gpus.GPU, index int, instance *gpus.Instance, wanted int) gpus.Code {
	compute, code := gpu.CreateCompute(instance, wanted)
	if code != gpus.OK {
		return code
	}
	c.print("Successfully created compute instance ID %2d on GPU %2d GPU instance ID %2d using profile MIG %s (ID %2d)",
		compute.ID, index, instance.ID, gpu.ComputeName(*instance, compute.Slices), gpus.ComputeProfileID(compute.Slices))
	return gpus.OK
}

// createComputeInstances makes compute instances by profile id, or one default for each empty GPU instance.
func (c *command) createComputeInstances(list string) gpus.Code {
	return c.eachInstance("Failed to create compute instances", func(index int, gpu *gpus.GPU, instance *gpus.Instance) gpus.Code {
		if list == "" {
			return c.createComputeInstance(gpu, index, instance, 0)
		}
		for word := range strings.SplitSeq(list, ",") {
			id, err := strconv.Atoi(word)
			if err != nil || id < 0 || id > 4 {
				return gpus.InvalidArgument
			}
			if code := c.createComputeInstance(gpu, index, instance, []int{1, 2, 3, 4, 7}[id]); code != gpus.OK {
				return code
			}
		}
		return gpus.OK
	})
}

func (c *command) destroyInstances() gpus.Code {
	return c.eachInstance("Failed to destroy GPU instances", func(index int, gpu *gpus.GPU, instance *gpus.Instance) gpus.Code {
		id := instance.ID
		code := c.state.Destroy(gpu, id)
		if code == gpus.OK {
			c.print("Successfully destroyed GPU instance ID %2d from GPU %2d", id, index)
		} else {
			c.print("Unable to destroy GPU instance ID %2d from GPU %2d: %s", id, index, code)
		}
		return code
	})
}

func (c *command) destroyComputeInstances() gpus.Code {
	return c.eachInstance("Failed to destroy compute instances", func(index int, gpu *gpus.GPU, instance *gpus.Instance) gpus.Code {
		ids := []int{}
		for _, compute := range instance.Compute {
			if c.options.compute == nil || *c.options.compute == strconv.Itoa(compute.ID) {
				ids = append(ids, compute.ID)
			}
		}
		if len(ids) == 0 && c.options.instance != nil {
			return gpus.NotFound
		}
		for _, id := range ids {
			if code := c.state.DestroyCompute(instance, id); code != gpus.OK {
				c.print("Unable to destroy compute instance ID %2d from GPU %2d GPU instance ID %2d: %s", id, index, instance.ID, code)
				return code
			}
			c.print("Successfully destroyed compute instance ID %2d from GPU %2d GPU instance ID %2d", id, index, instance.ID)
		}
		return gpus.OK
	})
}

// eachInstance calls do for the GPU instances that -i and -gi choose and stops at the first refusal.
func (c *command) eachInstance(failure string, do func(int, *gpus.GPU, *gpus.Instance) gpus.Code) gpus.Code {
	found := false
	for index, gpu := range c.migDevices() {
		ids := []int{}
		for _, instance := range gpu.Instances {
			if c.options.instance == nil || *c.options.instance == strconv.Itoa(instance.ID) {
				ids = append(ids, instance.ID)
			}
		}
		for _, id := range ids {
			found = true
			instance, _ := gpu.Instance(id)
			if code := do(index, gpu, instance); code != gpus.OK {
				c.print("%s: %s", failure, code)
				return code
			}
		}
	}
	if !found {
		c.print("No GPU instances found: %s", gpus.NotFound)
		return gpus.NotFound
	}
	return gpus.OK
}
