// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/release"
)

const (
	// The chart of this checkout stands in for a later version too. Their images differ in their labels.
	shipped, shippedNext = images.DefaultVersion, "0.1.1"
	registryPassword     = "secret"
	pullSecret           = "regcred"
)

// published is a registry with two versions, and the files of both.
type published struct {
	*act
	registry *release.Registry
	host     string
	dir      string
	// restored is set once the cluster has the Fenceline of before.
	restored bool
}

// playRelease: what make release publishes is installed from a bundle, upgraded from a registry with a login and
// taken back while a pod is used, and then installed and removed as fenceline.yaml.
func playRelease(ctx context.Context, a *act) {
	p := a.publish(ctx)
	p.restoreLater()
	a.leave(ctx)
	took := a.clock()
	p.installWithoutRegistry(ctx)
	pod := a.runPod(ctx, "web", nil, nil)
	a.story.Say("%s after the first command, pod %s runs on %s. No node has asked the registry.", took(), pod.Name, pod.Node.Name())
	must(p.registry.Blobs() == 0, "the registry has sent %d blobs", p.registry.Blobs())
	used := a.use(ctx, pod)
	p.upgrade(ctx, used)
	p.takeBack(ctx, used)
	a.story.Say("Of %d connections to pod %s none broke, and no ping was lost.", used.load.count, pod.Name)
	a.clear(ctx)
	a.leave(ctx)
	p.useManifest(ctx)
	p.restore(ctx)
}

// restoreLater is called before what needs Fenceline in its clean-up too.
func (p *published) restoreLater() { p.after("install Fenceline again", p.restore) }

func (p *published) restore(ctx context.Context) {
	if !p.restored {
		p.installAgain(ctx)
		p.restored = true
	}
}

// publish makes both versions, and pushes them to a registry that then asks for a login.
func (a *act) publish(ctx context.Context) *published {
	p := &published{act: a, registry: release.NewRegistry(), dir: value(os.MkdirTemp("", "fenceline-release-"))}
	a.after("remove the files of the release", func(context.Context) { check(os.RemoveAll(p.dir)) })
	host, stop, err := a.ServeRegistry(p.registry)
	check(err)
	a.after("end the registry", func(ctx context.Context) { check(errors.Join(stop(), a.DistrustRegistries(ctx))) })
	p.host = host
	for _, version := range []string{shipped, shippedNext} {
		took := a.clock()
		o := release.Options{Version: version, Registry: host + "/team", Out: p.file(version), Progress: io.Discard}
		check(release.Local(ctx, o))
		a.story.Say("Version %s is in the registry, after %s.", version, took())
	}
	p.registry.Lock(registryPassword)
	return p
}

// clock returns a function that tells the time since.
func (a *act) clock() func() time.Duration {
	started := time.Now()
	return func() time.Duration { return round(time.Since(started)) }
}

// file returns the path of a file of the release.
func (p *published) file(parts ...string) string {
	return filepath.Join(append([]string{p.dir}, parts...)...)
}

// leave uninstalls Fenceline, which has no leases but Warm ones.
func (a *act) leave(ctx context.Context) {
	value(a.Helm(ctx, "uninstall", "fenceline", "--namespace", cluster.FencelineNamespace))
	for _, n := range a.Nodes() {
		isWithoutFenceline(ctx, n)
	}
}

// helm runs a verb on the release in its namespace, waits, and shows the command.
func (a *act) helm(ctx context.Context, args ...string) {
	args = append(args, "--namespace", cluster.FencelineNamespace, "--timeout", "2m")
	took := a.clock()
	value(a.Helm(ctx, args...))
	a.story.Say("helm %s (%s)", strings.Join(args, " "), took())
}

// installWithoutRegistry loads the bundle on each node, and installs its chart. The nodes cannot read the registry.
func (p *published) installWithoutRegistry(ctx context.Context) {
	bundle := fmt.Sprintf("fenceline-%s-airgap-%s", shipped, "amd64")
	value(p.Shell(ctx, fmt.Sprintf("tar -xf %s -C %s", p.file(shipped, bundle+".tar"), p.dir)))
	for _, n := range p.Nodes() {
		value(n.Exec(ctx, p.file(bundle, "load.sh")))
	}
	p.helm(ctx, "install", "fenceline", p.file(bundle, "fenceline-"+shipped+".tgz"), "--create-namespace", "--wait")
	p.runs(ctx, shipped)
	p.makePool(ctx, len(p.Nodes())+4, func(s *v1alpha1.IPPoolSpec) {
		p.behindRouter(s)
		s.NamespaceName = []string{p.namespace, cluster.FencelineNamespace, "kube-system"}
	})
	p.restoreLater()
	p.after("remove CoreDNS", func(ctx context.Context) { check(p.RemoveDNS(ctx)) })
	check(p.InstallDNS(ctx))
}

// upgrade gives the nodes the password, installs the next version with other values, and tests it.
func (p *published) upgrade(ctx context.Context, used *use) {
	check(p.TrustRegistry(ctx, p.host))
	value(p.Kubectl(ctx, "create", "secret", "docker-registry", pullSecret, "--namespace="+cluster.FencelineNamespace,
		"--docker-server="+p.host, "--docker-username="+release.RegistryUser, "--docker-password="+registryPassword))
	p.after("remove the password", func(ctx context.Context) {
		value(p.Kubectl(ctx, "delete", "secret", pullSecret, "--namespace="+cluster.FencelineNamespace, "--ignore-not-found"))
	})
	p.helm(ctx, "upgrade", "fenceline", "oci://"+p.host+"/team/charts/fenceline", "--version", shippedNext,
		"--plain-http", "--username", release.RegistryUser, "--password", registryPassword,
		"--reset-then-reuse-values", "--set", "image.pullSecrets[0].name="+pullSecret, "--set", "controller.replicas=2", "--wait")
	p.runs(ctx, shippedNext)
	must(len(p.ours(ctx, "controller")) == 2, "the value controller.replicas has not changed")
	must(p.registry.Blobs() > 0, "no node has pulled an image")
	used.noticesNothing(ctx)
	p.helm(ctx, "test", "fenceline")
}

// takeBack returns to the first version and its values.
func (p *published) takeBack(ctx context.Context, used *use) {
	p.helm(ctx, "rollback", "fenceline", "--wait")
	p.runs(ctx, shipped)
	used.noticesNothing(ctx)
}

// runs judges that all pods of Fenceline are Ready, and have the images of a version by their digests.
func (p *published) runs(ctx context.Context, version string) {
	manifest := string(value(os.ReadFile(p.file(version, "fenceline.yaml"))))
	eventually(ctx, podLimit, "pods of version "+version, func(ctx context.Context) {
		for _, component := range []string{"agent", "controller"} {
			pods := p.ours(ctx, component)
			must(len(pods) > 0, "there is no %s", component)
			for _, pod := range pods {
				image := pod.Spec.Containers[0].Image
				must(strings.Contains(image, "@sha256:") && strings.Contains(manifest, "image: "+image+"\n"), "%s has the image %s", pod.Name, image)
				must(isReady(&pod) && pod.DeletionTimestamp == nil, "%s is not Ready, or ends", pod.Name)
			}
		}
	})
}

// clear removes pods, pool and CoreDNS, with which nobody may uninstall.
func (a *act) clear(ctx context.Context) {
	check(a.RemoveDNS(ctx))
	a.removePool(ctx, a.namespace)
}

// useManifest does the same with kubectl alone, and then hands over to helm, which can uninstall.
func (p *published) useManifest(ctx context.Context) {
	took := p.clock()
	value(p.Kubectl(ctx, "apply", "--server-side", "--filename", p.file(shipped, "fenceline.yaml")))
	p.runs(ctx, shipped)
	p.makePool(ctx, len(p.Nodes()), p.behindRouter)
	p.restoreLater()
	pod := p.runPod(ctx, "plain", nil, nil)
	p.story.Say("%s after kubectl apply --server-side -f fenceline.yaml, pod %s runs on %s.", took(), pod.Name, pod.Node.Name())
	p.clear(ctx)
	p.helm(ctx, "install", "fenceline", p.file(shipped, "fenceline-"+shipped+".tgz"), "--take-ownership", "--force-conflicts", "--wait")
	p.leave(ctx)
}
