// Command hold-gpu stands in for a CUDA program: it opens every device in view and keeps it until it is stopped.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"slicedesk.example/cluster/internal/gpus"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	place := gpus.Find()
	state, err := gpus.Load(place)
	if err != nil {
		fmt.Fprintln(os.Stderr, "no CUDA-capable device is detected")
		os.Exit(100)
	}
	for _, uuid := range state.VisibleUUIDs() {
		if err := gpus.Hold(place.Directory, uuid); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("holding", uuid)
	}
	<-stop
}
