// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler as processes of this machine.
package controlplane

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"time"
)

// Config describes the programs, directories, addresses and time limits of a control plane.
type Config struct {
	// Dir holds keys, etcd's data, logs and the list of running processes.
	Dir string
	// Command returns a command that runs where the control plane shall live.
	Command func(ctx context.Context, path string, args ...string) *exec.Cmd `json:"-"`

	// EtcdDir holds etcd; APIServerDir holds kube-apiserver; KubernetesDir the
	// controllers.
	EtcdDir, APIServerDir, KubernetesDir string

	// Address and Port are where clients reach the API server.
	Address netip.Addr
	Port    int
	// EtcdClientPort and EtcdPeerPort are on 127.0.0.1.
	EtcdClientPort, EtcdPeerPort int
	// Services are the ranges of cluster IPs, at most one of each family. The first address of the first
	// one is the API server's.
	Services []netip.Prefix
	// PodsAreRouted says that the API server reaches pods by their addresses. It asks webhooks and
	// extension servers there: kube-proxy does not run beside it.
	PodsAreRouted bool

	// WithoutControllers leaves out what controllers would have to make first,
	// such as a ServiceAccount for every pod.
	WithoutControllers bool
	// NodeMonitorGrace is how long a node may be silent before it is NotReady.
	NodeMonitorGrace time.Duration
	// Toleration is how long pods stay on a node that is not ready or not
	// reachable.
	Toleration time.Duration
}

// URL returns the API server's address for clients.
func (c Config) URL() string {
	return "https://" + netip.AddrPortFrom(c.Address, uint16(c.Port)).String()
}

func (c Config) etcdData() string        { return filepath.Join(c.Dir, "etcd") }
func (c Config) keys() string            { return filepath.Join(c.Dir, "keys") }
func (c Config) key(name string) string  { return filepath.Join(c.keys(), name) }
func (c Config) log(name string) string  { return filepath.Join(c.Dir, "log", name+".log") }
func (c Config) etcdURL(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

// Kubeconfig returns the file with which a client of that name connects:
// "admin", or a component.
func (c Config) Kubeconfig(client string) string { return c.key(client + ".kubeconfig") }

// seconds is how Kubernetes' toleration flags want a duration.
func seconds(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) }
