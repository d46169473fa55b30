#!/bin/sh
# The inside of a lab node: node.sh DIRECTORY BINARY NAME IMAGE...
# Runs as PID 1 of its own PID namespace, in its own mount namespace: when it is killed, every container,
# mount and virtual network card goes with it. DIRECTORY holds the node's files, prepared by node.py.
set -eu
directory=$1 binary=$2 name=$3
shift 3

# What would be written all over the machine is kept in the node's own folder instead.
mount --bind "$directory/lib" /var/lib
mount --make-rshared /var/lib
mount --bind "$directory/log" /var/log
mount --bind "$directory/run" /run
mount --bind "$directory/sbin" /usr/local/sbin                # the host's nvidia-smi
mount --bind "$directory/boot_id" /proc/sys/kernel/random/boot_id

containerd --config "$directory/containerd.toml" > "$directory/containerd.log" 2>&1 &
until ctr --address "$directory/run/containerd.sock" version > /dev/null 2>&1; do
  kill -0 $! || exit 1
  sleep 0.1
done
for image in "$@"; do
  ctr --address "$directory/run/containerd.sock" --namespace k8s.io images import "$image" > /dev/null
done
"$binary" kubelet --config "$directory/kubelet.json" --kubeconfig "$directory/kubeconfig" \
  --hostname-override "$name" --cert-dir "$directory/pki" > "$directory/kubelet.log" 2>&1 &
wait $!
