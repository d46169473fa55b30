// Package smi answers like nvidia-smi: the arguments, tables, sentences and exit codes of driver 580.
package smi

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"slicedesk.example/cluster/internal/gpus"
)

// options are the arguments of one call; a nil pointer is an argument that was not given.
type options struct {
	mig, xml, reset, withCompute bool
	verbs                        []string
	devices                      *string
	query, format, mode          *string
	instance, compute            *string
	create, createCompute        *string
}

type command struct {
	out     io.Writer
	state   *gpus.State
	isHost  bool
	options options
	devices []gpus.Device // in view and chosen by -i; each keeps its index in the view
	indices []int
}

// Run answers one call and returns its exit code.
func Run(out io.Writer, place gpus.Place, arguments []string) gpus.Code {
	parsed, message := parse(arguments)
	if message != "" {
		fmt.Fprintln(out, message)
		return gpus.InvalidArgument
	}
	if parsed.changes() && !place.IsHost {
		fmt.Fprintln(out, gpus.NoPermission)
		return gpus.NoPermission
	}
	if parsed.changes() {
		release, err := gpus.Lock(place.Directory)
		if err != nil {
			fmt.Fprintln(out, gpus.NoPermission)
			return gpus.NoPermission
		}
		defer release()
	}
	state, err := gpus.Load(place)
	if errors.Is(err, gpus.ErrNoDriver) {
		fmt.Fprintln(out, "Failed to initialize NVML: Unknown Error")
		return gpus.Unknown
	}
	if err != nil {
		fmt.Fprintln(out, err)
		return gpus.Unknown
	}
	c := &command{out: out, state: state, isHost: place.IsHost, options: parsed}
	return c.run()
}

func (c *command) run() gpus.Code {
	if !c.choose() || len(c.devices) == 0 {
		fmt.Fprintln(c.out, "No devices were found")
		return gpus.NotFound
	}
	code := c.dispatch()
	if c.options.changes() {
		if err := c.state.Save(); err != nil {
			fmt.Fprintln(c.out, gpus.NoPermission)
			return gpus.NoPermission
		}
	}
	return code
}

func (o options) changes() bool {
	if o.mode != nil || o.reset || o.create != nil || o.createCompute != nil {
		return true
	}
	for _, verb := range o.verbs {
		if verb == "-dgi" || verb == "-dci" {
			return true
		}
	}
	return false
}

var longNames = map[string]string{
	"--list-gpus": "-L", "--query": "-q", "--xml-format": "-x", "--id": "-i", "--gpu-reset": "-r",
	"--multi-instance-gpu": "-mig", "--list-gpu-instance-profiles": "-lgip",
	"--list-gpu-instance-possible-placements": "-lgipp", "--list-gpu-instances": "-lgi",
	"--list-compute-instances": "-lci", "--list-compute-instance-profiles": "-lcip",
	"--create-gpu-instance": "-cgi", "--default-compute-instance": "-C",
	"--create-compute-instance": "-cci", "--destroy-gpu-instance": "-dgi",
	"--destroy-compute-instance": "-dci", "--gpu-instance-id": "-gi", "--compute-instance-id": "-ci",
}

// parse reads the arguments; message is what nvidia-smi says to those that it does not know.
func parse(arguments []string) (o options, message string) {
	for i := 0; i < len(arguments); i++ {
		name, value, hasValue := strings.Cut(arguments[i], "=")
		if short, ok := longNames[name]; ok {
			name = short
		}
		// next takes the option's value: after an equals sign or as the next argument.
		next := func() *string {
			if !hasValue && i+1 < len(arguments) && !strings.HasPrefix(arguments[i+1], "-") {
				i++
				value, hasValue = arguments[i], true
			}
			if !hasValue {
				return nil
			}
			return &value
		}
		if target, ok := o.valued()[name]; ok {
			if *target = next(); *target == nil {
				return o, fmt.Sprintf("ERROR: Option %s requires a value. Please run 'nvidia-smi -h'.", name)
			}
		} else if !o.set(name, next) {
			return o, fmt.Sprintf("ERROR: Option %s is not recognized. Please run 'nvidia-smi -h'.", arguments[i])
		}
	}
	return o, ""
}

// valued returns where the value of each option that needs one goes.
func (o *options) valued() map[string]**string {
	return map[string]**string{
		"-i": &o.devices, "--query-gpu": &o.query, "--format": &o.format, "-mig": &o.mode,
		"-gi": &o.instance, "-ci": &o.compute, "-cgi": &o.create,
	}
}

// set notes an option that needs no value; false says that there is no such option.
func (o *options) set(name string, next func() *string) bool {
	switch name {
	case "mig":
		o.mig = true
	case "-x":
		o.xml = true
	case "-r":
		o.reset = true
	case "-C":
		o.withCompute = true
	case "-L", "-q", "-lgip", "-lgipp", "-lgi", "-lci", "-lcip", "-dgi", "-dci":
		o.verbs = append(o.verbs, name)
	case "-cci":
		if o.createCompute = next(); o.createCompute == nil {
			o.createCompute = new(string)
		}
	default:
		return false
	}
	return true
}

// choose fills devices by -i: an index, a UUID or a bus id, several with commas.
func (c *command) choose() bool {
	visible := c.state.Visible()
	take := func(index int) {
		c.devices = append(c.devices, visible[index])
		c.indices = append(c.indices, index)
	}
	if c.options.devices == nil {
		for index := range visible {
			take(index)
		}
		return true
	}
	for word := range strings.SplitSeq(*c.options.devices, ",") {
		found := false
		for index, device := range visible {
			if word == strconv.Itoa(index) || word == device.UUID || strings.EqualFold(word, device.BusID) {
				take(index)
				found = true
			}
		}
		if !found {
			return false
		}
	}
	return true
}

func (c *command) dispatch() gpus.Code {
	o := c.options
	switch {
	case o.mig:
		return c.migCommand()
	case o.mode != nil:
		return c.switchMode(*o.mode)
	case o.reset:
		return c.resetGPUs()
	case o.query != nil:
		return c.queryGPUs()
	case len(o.verbs) == 0:
		c.printSummary()
		return gpus.OK
	case o.verbs[0] == "-L":
		c.printList()
		return gpus.OK
	case o.verbs[0] == "-q" && o.xml:
		c.printXML()
		return gpus.OK
	case o.verbs[0] == "-q":
		c.printDetails()
		return gpus.OK
	default:
		return c.badCombination()
	}
}

func (c *command) badCombination() gpus.Code {
	fmt.Fprintln(c.out, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.")
	return gpus.InvalidArgument
}

func (c *command) print(format string, values ...any) {
	fmt.Fprintf(c.out, format+"\n", values...)
}

func (c *command) printList() {
	for i, device := range c.devices {
		c.print("GPU %d: %s (UUID: %s)", c.indices[i], device.Name, device.UUID)
		for number, mig := range device.MIGDevices {
			name := device.ComputeName(mig.Instance, mig.Compute.Slices)
			c.print("  MIG %-11s Device %2d: (UUID: %s)", name, number, mig.Compute.UUID)
		}
	}
}
