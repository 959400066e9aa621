// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/process"
)

const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// collect lets the heap of Go programs grow to five times the live data before a collection, not to
// twice. A small API server has little live data: with Go's default it spends a fifth of its CPU time
// on collections, unlike in a real cluster.
const collect = "GOGC=400"

// readyLimit is how long an API server may take to be ready on a busy machine.
const readyLimit = 3 * time.Minute

// ControlPlane is a control plane whose keys are written. Its methods must not be called at the same time.
type ControlPlane struct {
	Config  Config
	running map[string]process.Process
}

// Open returns the control plane in c.Dir with the processes that an earlier caller has started.
func Open(c Config) (_ *ControlPlane, err error) {
	defer must.Catch(&err)
	p := &ControlPlane{Config: c, running: map[string]process.Process{}}
	data, err := os.ReadFile(p.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	must.Done(err, "read processes of the control plane")
	must.Done(json.Unmarshal(data, &p.running), "read %s", p.stateFile())
	return p, nil
}

// Start starts everything and returns when the API server is ready.
func (p *ControlPlane) Start(ctx context.Context) (err error) {
	defer must.Catch(&err)
	must.OK(p.StartAPIServer(ctx))
	if p.Config.WithoutControllers {
		return nil
	}
	must.OK(p.StartControllerManager())
	p.start(scheduler, p.Config.KubernetesDir, p.Config.schedulerArguments())
	return nil
}

// StartAPIServer starts kube-apiserver, and etcd if it does not run, and returns when the API server is ready.
func (p *ControlPlane) StartAPIServer(ctx context.Context) (err error) {
	defer must.Catch(&err)
	p.start(etcd, p.Config.EtcdDir, p.Config.etcdArguments())
	p.start(apiServer, p.Config.APIServerDir, p.Config.apiServerArguments())
	p.waitReady(ctx)
	return nil
}

// StopAPIServer ends kube-apiserver; etcd keeps the data, and the controllers run on.
func (p *ControlPlane) StopAPIServer(ctx context.Context) error { return p.stop(ctx, apiServer) }

// RestartEtcd ends etcd without a word, as kill -9 does, and starts it again. kube-apiserver runs on. It
// returns when the API server is ready.
func (p *ControlPlane) RestartEtcd(ctx context.Context) (err error) {
	defer must.Catch(&err)
	must.Done(p.running[etcd].Kill(ctx), "kill etcd")
	return p.StartAPIServer(ctx)
}

// CPU returns how much CPU time kube-apiserver has used since it was started.
func (p *ControlPlane) CPU() (time.Duration, error) { return p.running[apiServer].CPU() }

// Memory returns the resident memory of kube-apiserver in bytes.
func (p *ControlPlane) Memory() (uint64, error) {
	now, _, err := p.running[apiServer].Memory()
	return now, err
}

// StartControllerManager starts kube-controller-manager, with the controllers of Kubernetes. Start
// leaves it out if Config.WithoutControllers is set. Stop ends it.
func (p *ControlPlane) StartControllerManager() (err error) {
	defer must.Catch(&err)
	p.start(controllerManager, p.Config.KubernetesDir, p.Config.controllerManagerArguments())
	return nil
}

// StopControllerManager ends kube-controller-manager. Until it starts again, nothing updates the
// objects that its controllers have written.
func (p *ControlPlane) StopControllerManager(ctx context.Context) error {
	return p.stop(ctx, controllerManager)
}

// Stop ends everything. The API server goes before etcd, or it would wait for it.
func (p *ControlPlane) Stop(ctx context.Context) error {
	var errs []error
	for _, name := range []string{scheduler, controllerManager, apiServer, etcd} {
		errs = append(errs, p.stop(ctx, name))
	}
	return errors.Join(errs...)
}

// RESTConfig returns an administrator's access without a client-side limit.
func (p *ControlPlane) RESTConfig() (_ *rest.Config, err error) {
	defer must.CatchIn(&err, "load the administrator's kubeconfig")
	config := must.Value(clientcmd.BuildConfigFromFlags("", p.Config.Kubeconfig("admin")))
	config.QPS = -1
	return config, nil
}

func (p *ControlPlane) start(name, dir string, args []string) {
	if p.running[name].Alive() {
		return
	}
	// The process outlives every context: it ends by Stop alone.
	cmd := p.Config.Command(context.Background(), filepath.Join(dir, name), args...)
	cmd.Env = append(cmd.Environ(), collect)
	p.running[name] = must.Value(process.Start(name, cmd, p.Config.log(name)))
	p.save()
}

func (p *ControlPlane) stop(ctx context.Context, name string) (err error) {
	defer must.Catch(&err)
	if proc, ok := p.running[name]; ok {
		must.OK(proc.Stop(ctx, 2*time.Second))
		delete(p.running, name)
		p.save()
	}
	return nil
}

func (p *ControlPlane) waitReady(ctx context.Context) {
	config := must.Value(p.RESTConfig())
	config.Timeout = 5 * time.Second
	client, err := kubernetes.NewForConfig(config)
	must.Done(err, "connect to the API server")
	err = await.Until(ctx, readyLimit, "the API server", func(ctx context.Context) error {
		err := ready(ctx, client.Discovery().RESTClient())
		for _, name := range []string{etcd, apiServer} {
			if err != nil && !p.running[name].Alive() {
				return await.Never(fmt.Errorf("%s has ended: %s", name, p.lastLog(name)))
			}
		}
		return err
	})
	if err != nil {
		panic(must.Failure("%w (%s)", err, p.lastLog(apiServer)))
	}
}

// ready asks whether the API server is ready, and whether it has made the
// namespaces that it makes itself, which comes a moment later.
func ready(ctx context.Context, client rest.Interface) error {
	for _, path := range []string{"/readyz", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/default"} {
		if _, err := client.Get().AbsPath(path).DoRaw(ctx); err != nil {
			return err
		}
	}
	return nil
}

// lastLog returns the end of a component's log, for error messages.
func (p *ControlPlane) lastLog(name string) string {
	data, err := os.ReadFile(p.Config.log(name))
	if err != nil {
		return err.Error()
	}
	const keep = 2000
	return strings.TrimSpace(string(data[max(0, len(data)-keep):]))
}

func (p *ControlPlane) stateFile() string { return filepath.Join(p.Config.Dir, "processes.json") }

func (p *ControlPlane) save() {
	must.Done(os.WriteFile(p.stateFile(), must.Value(json.Marshal(p.running)), 0o644), "write processes of the control plane")
}
