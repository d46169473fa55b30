package smi

import (
	"fmt"
	"strings"
	"time"

	"slicedesk.example/cluster/internal/gpus"
)

// field is one column of --query-gpu; its unit, if any, stands in the heading and after each value.
type field struct {
	name, unit string
	value      func(*command, int) string
}

func fields() map[string]field {
	table := map[string]field{}
	add := func(unit string, value func(*command, int) string, names ...string) {
		for _, name := range names {
			table[name] = field{names[0], unit, value}
		}
	}
	fixed := func(text string) func(*command, int) string {
		return func(*command, int) string { return text }
	}
	add("", func(c *command, i int) string { return fmt.Sprint(c.indices[i]) }, "index")
	add("", func(c *command, i int) string { return c.devices[i].UUID }, "uuid", "gpu_uuid")
	add("", func(c *command, i int) string { return c.devices[i].Name }, "name", "gpu_name")
	add("", func(c *command, i int) string { return c.devices[i].BusID }, "pci.bus_id", "gpu_bus_id")
	add("", func(c *command, i int) string { return c.devices[i].DeviceID }, "pci.device_id")
	add("", func(c *command, i int) string { return c.devices[i].ComputeCapability }, "compute_cap")
	add("", func(c *command, _ int) string { return c.state.DriverVersion }, "driver_version")
	add("", func(c *command, _ int) string { return fmt.Sprint(len(c.devices)) }, "count")
	add("MiB", func(c *command, i int) string { return fmt.Sprint(c.devices[i].MemoryMiB) }, "memory.total")
	add("MiB", func(c *command, i int) string { return fmt.Sprint(c.devices[i].MemoryMiB) }, "memory.free")
	add("MiB", fixed("0"), "memory.used")
	add("%", fixed("0"), "utilization.gpu")
	add("", fixed("34"), "temperature.gpu")
	add("", fixed("Default"), "compute_mode")
	add("", fixed("Enabled"), "persistence_mode")
	add("", func(c *command, i int) string {
		return mode(c.devices[i].GPU, c.devices[i].MIG, "[N/A]")
	}, "mig.mode.current")
	add("", func(c *command, i int) string {
		return mode(c.devices[i].GPU, c.devices[i].PendingMIG, "[N/A]")
	}, "mig.mode.pending")
	return table
}

func mode(gpu *gpus.GPU, on bool, none string) string {
	switch {
	case !gpu.CanMIG():
		return none
	case on:
		return "Enabled"
	default:
		return "Disabled"
	}
}

func (c *command) queryGPUs() gpus.Code {
	known, chosen := fields(), []field{}
	for name := range strings.SplitSeq(*c.options.query, ",") {
		name = strings.TrimSpace(name)
		column, ok := known[name]
		if !ok {
			c.print("Field %q is not a valid field to query.\n", name)
			return gpus.InvalidArgument
		}
		column.name = name
		chosen = append(chosen, column)
	}
	format := ""
	if c.options.format != nil {
		format = *c.options.format
	}
	words := "," + strings.ReplaceAll(format, " ", "") + ","
	if !strings.Contains(words, ",csv,") {
		c.print("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.")
		return gpus.InvalidArgument
	}
	units := !strings.Contains(words, ",nounits,")
	if !strings.Contains(words, ",noheader,") {
		c.printHeading(chosen)
	}
	for i := range c.devices {
		values := make([]string, len(chosen))
		for j, column := range chosen {
			values[j] = column.value(c, i)
			if units && column.unit != "" {
				values[j] += " " + column.unit
			}
		}
		c.print("%s", strings.Join(values, ", "))
	}
	return gpus.OK
}

func (c *command) printHeading(chosen []field) {
	names := make([]string, len(chosen))
	for j, column := range chosen {
		names[j] = column.name
		if column.unit != "" {
			names[j] += " [" + column.unit + "]"
		}
	}
	c.print("%s", strings.Join(names, ", "))
}

// printXML is `-q -x` with the elements that people read: identity, MIG mode and devices, memory.
func (c *command) printXML() {
	c.print("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\">\n<nvidia_smi_log>")
	c.print("\t<timestamp>%s</timestamp>", time.Now().Format(time.ANSIC))
	c.print("\t<driver_version>%s</driver_version>\n\t<cuda_version>%s</cuda_version>", c.state.DriverVersion, c.state.CUDAVersion)
	c.print("\t<attached_gpus>%d</attached_gpus>", len(c.devices))
	for i, device := range c.devices {
		c.print("\t<gpu id=\"%s\">\n\t\t<product_name>%s</product_name>", device.BusID, device.Name)
		c.print("\t\t<mig_mode>\n\t\t\t<current_mig>%s</current_mig>\n\t\t\t<pending_mig>%s</pending_mig>\n\t\t</mig_mode>",
			mode(device.GPU, device.MIG, "N/A"), mode(device.GPU, device.PendingMIG, "N/A"))
		c.printXMLDevices(device)
		c.print("\t\t<uuid>%s</uuid>\n\t\t<minor_number>%d</minor_number>", device.UUID, c.indices[i])
		c.print("\t\t<pci>\n\t\t\t<pci_device_id>%s</pci_device_id>\n\t\t\t<pci_bus_id>%s</pci_bus_id>\n\t\t</pci>",
			strings.TrimPrefix(device.DeviceID, "0x"), device.BusID)
		c.print("%s", xmlMemory("\t\t", device.MemoryMiB))
		c.print("\t\t<compute_mode>Default</compute_mode>\n\t\t<processes>\n\t\t</processes>\n\t</gpu>")
	}
	c.print("</nvidia_smi_log>")
}

func (c *command) printXMLDevices(device gpus.Device) {
	c.print("\t\t<mig_devices>")
	for number, mig := range device.MIGDevices {
		p := device.Of(mig.Instance)
		c.print("\t\t\t<mig_device>\n\t\t\t\t<index>%d</index>\n\t\t\t\t<gpu_instance_id>%d</gpu_instance_id>", number, mig.Instance.ID)
		c.print("\t\t\t\t<compute_instance_id>%d</compute_instance_id>\n\t\t\t\t<device_attributes>\n\t\t\t\t\t<shared>", mig.Compute.ID)
		for _, engine := range []struct {
			name  string
			count int
		}{{"multiprocessor", p.SM * mig.Compute.Slices / p.ComputeSlices}, {"copy_engine", p.CE}, {"encoder", p.ENC},
			{"decoder", p.DEC}, {"ofa", p.OFA}, {"jpg", p.JPEG}} {
			c.print("\t\t\t\t\t\t<%s_count>%d</%s_count>", engine.name, engine.count, engine.name)
		}
		c.print("\t\t\t\t\t</shared>\n\t\t\t\t</device_attributes>\n%s\n\t\t\t</mig_device>", xmlMemory("\t\t\t\t", p.MemoryMiB))
	}
	if len(device.MIGDevices) == 0 {
		c.print("\t\t\tNone")
	}
	c.print("\t\t</mig_devices>")
}

func xmlMemory(indent string, mib int) string {
	return fmt.Sprintf("%[1]s<fb_memory_usage>\n%[1]s\t<total>%[2]d MiB</total>\n%[1]s\t<reserved>0 MiB</reserved>\n"+
		"%[1]s\t<used>0 MiB</used>\n%[1]s\t<free>%[2]d MiB</free>\n%[1]s</fb_memory_usage>", indent, mib)
}

// printDetails is the least of `-q`: who the GPU is, MIG mode, memory.
func (c *command) printDetails() {
	c.print("\n==============NVSMI LOG==============\n")
	row := func(indent int, name, value string) {
		c.print("%*s%-*s: %s", indent, "", 43-indent, name, value)
	}
	row(0, "Timestamp", time.Now().Format(time.ANSIC))
	row(0, "Driver Version", c.state.DriverVersion)
	row(0, "CUDA Version", c.state.CUDAVersion)
	c.print("")
	row(0, "Attached GPUs", fmt.Sprint(len(c.devices)))
	for _, device := range c.devices {
		c.print("GPU %s", device.BusID)
		row(4, "Product Name", device.Name)
		c.print("    MIG Mode")
		row(8, "Current", mode(device.GPU, device.MIG, "N/A"))
		row(8, "Pending", mode(device.GPU, device.PendingMIG, "N/A"))
		row(4, "GPU UUID", device.UUID)
		c.print("    FB Memory Usage")
		row(8, "Total", fmt.Sprintf("%d MiB", device.MemoryMiB))
	}
	c.print("")
}

// printSummary is the table that `nvidia-smi` alone prints, GPUs only.
func (c *command) printSummary() {
	wide := strings.Repeat("-", 89)
	columns := strings.Repeat("-", 41) + "+" + strings.Repeat("-", 24) + "+" + strings.Repeat("-", 22)
	c.print("%s\n+%s+", time.Now().Format(time.ANSIC), wide)
	c.print("| NVIDIA-SMI %-23sDriver Version: %-15sCUDA Version: %-9s|", c.state.DriverVersion, c.state.DriverVersion, c.state.CUDAVersion)
	c.print("+%s+", columns)
	c.print("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |")
	c.print("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |")
	c.print("|                                         |                        |               MIG M. |")
	c.print("|%s+%s+%s|", strings.Repeat("=", 41), strings.Repeat("=", 24), strings.Repeat("=", 22))
	for i, device := range c.devices {
		c.print("| %3d  %-28.28sOn  |   %s Off |                    0 |", c.indices[i], device.Name, device.BusID)
		c.print("| N/A   34C    P0             N/A /  N/A  |%8dMiB /%7dMiB |      0%%      Default |", 0, device.MemoryMiB)
		c.print("|                                         |                        |%21s |", mode(device.GPU, device.MIG, "N/A"))
		c.print("+%s+", columns)
	}
}
