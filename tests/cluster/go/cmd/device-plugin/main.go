// Command device-plugin stands in for NVIDIA's device plugin, migStrategy mixed, with its habits: it
// lists devices when it starts and never again, and it serves nothing at all when one of them is odd.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"slicedesk.example/cluster/internal/gpus"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	resource string
	uuids    []string
}

func (p plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	devices := make([]*api.Device, len(p.uuids))
	for i, uuid := range p.uuids {
		devices[i] = &api.Device{ID: uuid, Health: api.Healthy}
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate names the devices to the container; the mount of the state, read-only, is this node's
// stand-in for the driver files that NVIDIA's runtime brings in for the same variable.
func (p plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs:   map[string]string{gpus.VisibleVariable: strings.Join(container.DevicesIds, ",")},
			Mounts: []*api.Mount{{ContainerPath: gpus.ContainerDirectory, HostPath: gpus.HostDirectory, ReadOnly: true}},
		})
	}
	return answer, nil
}

// resources groups what the plugin offers by resource name.
func resources(state *gpus.State) (map[string][]string, error) {
	offered := map[string][]string{}
	for _, gpu := range state.GPUs {
		if !gpu.MIG {
			offered["nvidia.com/gpu"] = append(offered["nvidia.com/gpu"], gpu.UUID)
			continue
		}
		for _, instance := range gpu.Instances {
			for _, compute := range instance.Compute {
				name := gpu.ComputeName(instance, compute.Slices)
				if name != instance.Profile {
					return nil, fmt.Errorf("MIG device %s does not match any resource patterns", name)
				}
				resource := "nvidia.com/mig-" + strings.ReplaceAll(name, "+", ".")
				offered[resource] = append(offered[resource], compute.UUID)
			}
		}
	}
	return offered, nil
}

func serve(resource string, uuids []string) (socket string) {
	name := "nvidia-" + strings.TrimPrefix(resource, "nvidia.com/") + ".sock"
	socket = filepath.Join(api.DevicePluginPath, name)
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, plugin{resource: resource, uuids: uuids})
	go server.Serve(listener)
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	registration := &api.RegisterRequest{Version: api.Version, Endpoint: name, ResourceName: resource}
	if _, err := api.NewRegistrationClient(connection).Register(ctx, registration); err != nil {
		log.Fatal(err)
	}
	log.Printf("Registered device plugin for '%s' with Kubelet, %d devices", resource, len(uuids))
	return socket
}

func main() {
	state, err := gpus.Load(gpus.Find())
	if err != nil {
		log.Fatal("failed to initialize NVML: ", err)
	}
	offered, err := resources(state)
	if err != nil {
		log.Fatal(err)
	}
	if len(offered) == 0 {
		log.Print("No devices found. Waiting indefinitely.")
	}
	sockets := []string{}
	for resource, uuids := range offered {
		sockets = append(sockets, serve(resource, uuids))
	}
	for {
		time.Sleep(500 * time.Millisecond)
		gone := func(socket string) bool { _, err := os.Stat(socket); return err != nil }
		if slices.ContainsFunc(sockets, gone) {
			// A kubelet that starts anew empties the directory; NVIDIA's plugin then starts anew as well.
			log.Print("kubelet restarted")
			log.Fatal(syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
		}
	}
}
