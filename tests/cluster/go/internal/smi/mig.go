package smi

import (
	"fmt"
	"iter"
	"strconv"
	"strings"

	"slicedesk.example/cluster/internal/gpus"
)

// migDevices yields the chosen GPUs whose MIG mode is on, by their index in view.
func (c *command) migDevices() iter.Seq2[int, *gpus.GPU] {
	return c.gpusWhere(func(gpu *gpus.GPU) bool { return gpu.MIG })
}

func (c *command) gpusWhere(holds func(*gpus.GPU) bool) iter.Seq2[int, *gpus.GPU] {
	return func(yield func(int, *gpus.GPU) bool) {
		for i, device := range c.devices {
			if holds(device.GPU) && !yield(c.indices[i], device.GPU) {
				return
			}
		}
	}
}

func (c *command) has(holds func(*gpus.GPU) bool) bool {
	for range c.gpusWhere(holds) {
		return true
	}
	return false
}

// migCommand is `nvidia-smi mig …`. Containers may not look at or change GPU instances.
func (c *command) migCommand() gpus.Code {
	o := c.options
	if !c.isHost {
		c.print("%s", gpus.NoPermission)
		return gpus.NoPermission
	}
	verb := ""
	if len(o.verbs) == 1 {
		verb = o.verbs[0]
	}
	if verb == "-lgip" || verb == "-lgipp" {
		return c.printTable(verb)
	}
	if !c.has(func(gpu *gpus.GPU) bool { return gpu.MIG }) {
		c.print("No MIG-enabled devices found.")
		if o.changes() {
			return gpus.NotFound
		}
		return gpus.OK
	}
	switch {
	case o.create != nil:
		return c.createInstances(*o.create)
	case o.createCompute != nil:
		return c.createComputeInstances(*o.createCompute)
	case verb == "-dgi":
		return c.destroyInstances()
	case verb == "-dci":
		return c.destroyComputeInstances()
	case verb == "-lgi":
		return c.printInstances()
	case verb == "-lci":
		return c.printComputeInstances()
	case verb == "-lcip":
		return c.printComputeProfiles()
	default:
		return c.badCombination()
	}
}

// printTable prints a model's own table, which drivers tell while MIG mode is off as well.
func (c *command) printTable(verb string) gpus.Code {
	if !c.has((*gpus.GPU).CanMIG) {
		c.print("No MIG-supported devices found.")
		return gpus.NotFound
	}
	if verb == "-lgip" {
		c.printProfiles()
	} else {
		c.printPlacements()
	}
	return gpus.OK
}

// table collects rows between rules of one width.
type table struct {
	text  strings.Builder
	width int
	rows  int
}

func newTable(heading ...string) *table {
	t := &table{width: len(heading[0]) - 2}
	t.rule("-")
	for _, line := range heading {
		t.line("%s", line)
	}
	t.text.WriteString("|" + strings.Repeat("=", t.width) + "|\n")
	return t
}

func (t *table) rule(mark string) { t.text.WriteString("+" + strings.Repeat(mark, t.width) + "+\n") }

func (t *table) line(format string, values ...any) { fmt.Fprintf(&t.text, format+"\n", values...) }

func (t *table) endRow() {
	t.rule("-")
	t.rows++
}

func (c *command) printProfiles() {
	t := newTable(
		"| GPU instance profiles:                                                        |",
		"| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |",
		"|                                Free/Total   GiB              CE    JPEG  OFA  |",
	)
	for index, gpu := range c.gpusWhere((*gpus.GPU).CanMIG) {
		for _, p := range gpu.Profiles {
			free := fmt.Sprintf("%d/%d", gpu.Free(p), p.MaxInstances)
			memory := fmt.Sprintf("%.2f", float64(p.MemoryMiB)/1024)
			t.line("| %3d  MIG %-16s%2d     %-11s%-11sNo     %-7d%-6d%-4d|", index, p.Name, p.ID, free, memory, p.SM, p.DEC, p.ENC)
			t.line("|%63s%-6d%-6d%-4d|", "", p.CE, p.JPEG, p.OFA)
			t.endRow()
		}
	}
	fmt.Fprint(c.out, t.text.String())
}

func (c *command) printPlacements() {
	for index, gpu := range c.gpusWhere((*gpus.GPU).CanMIG) {
		for _, p := range gpu.Profiles {
			starts := make([]string, len(p.Starts))
			for i, start := range p.Starts {
				starts[i] = strconv.Itoa(start)
			}
			word := "Placements:"
			if len(starts) == 1 {
				word = "Placement :"
			}
			c.print("GPU %2d Profile ID %2d %s {%s}:%d", index, p.ID, word, strings.Join(starts, ","), p.MemorySlices)
		}
	}
}

func (c *command) printInstances() gpus.Code {
	t := newTable(
		"| GPU instances:                                          |",
		"| GPU   Name               Profile  Instance   Placement  |",
		"|                            ID       ID       Start:Size |",
	)
	for index, gpu := range c.migDevices() {
		for _, instance := range gpu.Instances {
			p := gpu.Of(instance)
			t.line("| %3d  MIG %-18s%2d%9d          %d:%-6d|", index, p.Name, p.ID, instance.ID, instance.Start, p.MemorySlices)
			t.endRow()
		}
	}
	return c.finish(t, "GPU instances")
}

func (c *command) printComputeInstances() gpus.Code {
	t := newTable(
		"| Compute instances:                                                 |",
		"| GPU     GPU       Name             Profile   Instance   Placement  |",
		"|       Instance                       ID        ID       Start:Size |",
		"|         ID                                                         |",
	)
	for index, gpu := range c.migDevices() {
		for _, instance := range gpu.Instances {
			if !c.chosen(instance) {
				continue
			}
			for _, compute := range instance.Compute {
				name := gpu.ComputeName(instance, compute.Slices)
				t.line("|%4d%7d       MIG %-16s%2d%10d          %d:%-6d|", index, instance.ID, name,
					gpus.ComputeProfileID(compute.Slices), compute.ID, compute.Start, compute.Slices)
				t.endRow()
			}
		}
	}
	return c.finish(t, "compute instances")
}

func (c *command) printComputeProfiles() gpus.Code {
	t := newTable(
		"| Compute instance profiles:                                                           |",
		"| GPU     GPU       Name             Profile  Instances   Exclusive       Shared       |",
		"|       Instance                       ID     Free/Total     SM       DEC   ENC   OFA  |",
		"|         ID                                                          CE    JPEG       |",
	)
	for index, gpu := range c.migDevices() {
		for _, instance := range gpu.Instances {
			if c.chosen(instance) {
				computeProfileRows(t, index, gpu, instance)
			}
		}
	}
	return c.finish(t, "GPU instances")
}

func computeProfileRows(t *table, index int, gpu *gpus.GPU, instance gpus.Instance) {
	p, used := gpu.Of(instance), 0
	for _, compute := range instance.Compute {
		used += compute.Slices
	}
	for _, size := range []int{1, 2, 3, 4, 7} {
		if size > p.ComputeSlices {
			break
		}
		mark := " "
		if size == p.ComputeSlices {
			mark = "*"
		}
		free := fmt.Sprintf("%d/%d", (p.ComputeSlices-used)/size, p.ComputeSlices/size)
		t.line("|%4d%7d       MIG %-16s%2d%s     %-14s%-10d%-6d%-6d%-4d|", index, instance.ID, gpu.ComputeName(instance, size),
			gpus.ComputeProfileID(size), mark, free, p.SM*size/p.ComputeSlices, p.DEC, p.ENC, p.OFA)
		t.line("|%70s%-6d%-10d|", "", p.CE, p.JPEG)
		t.endRow()
	}
}

func (c *command) chosen(instance gpus.Instance) bool {
	return c.options.instance == nil || *c.options.instance == strconv.Itoa(instance.ID)
}

func (c *command) finish(t *table, what string) gpus.Code {
	if t.rows == 0 {
		c.print("No %s found: %s", what, gpus.NotFound)
		return gpus.NotFound
	}
	fmt.Fprint(c.out, t.text.String())
	return gpus.OK
}
