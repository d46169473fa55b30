// Command nvidia-smi stands in for NVIDIA's, over the node's state file.
package main

import (
	"os"

	"slicedesk.example/cluster/internal/gpus"
	"slicedesk.example/cluster/internal/smi"
)

func main() {
	os.Exit(int(smi.Run(os.Stdout, gpus.Find(), os.Args[1:])))
}
