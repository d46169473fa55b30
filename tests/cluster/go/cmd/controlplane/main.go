// Command controlplane is a real Kubernetes control plane in one binary, for tests and demos.
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

func main() {
	name := filepath.Base(os.Args[0])
	if len(os.Args) > 1 && name == "controlplane" {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          func() *cobra.Command { return apiserver.NewAPIServerCommand() },
		"kube-controller-manager": func() *cobra.Command { return controllers.NewControllerManagerCommand() },
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	}
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	if name == "rsa-key" && len(os.Args) == 2 {
		writeKey(os.Args[1])
		return
	}
	if command, ok := commands[name]; ok {
		os.Exit(cli.Run(command()))
	}
	fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet [flags]\n"+
		"       controlplane rsa-key FILE")
	os.Exit(2)
}

// writeKey makes the key that signs service account tokens, so that no other program is needed for it.
func writeKey(path string) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err == nil {
		block := pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
		err = os.WriteFile(path, pem.EncodeToMemory(&block), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
