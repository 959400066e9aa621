// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// firstSection of docs/start.md begins what a user does on a cluster with Fenceline.
const firstSection = "### A pool"

// user follows docs/start.md in the namespace default.
type user struct {
	*act
	// templates of docs/start.md have become pods.
	templates int
}

// playReadme: all that docs/start.md says from its first pool on is true on a cluster of `make cluster-up`.
func playReadme(ctx context.Context, a *act) error {
	started := time.Now()
	u := &user{act: a}
	for _, pool := range []string{"underlay", "underlay-backup", "underlay-v6"} {
		a.after("remove pool "+pool, func(ctx context.Context) error { return a.removePool(ctx, pool) })
	}
	a.after("remove CoreDNS", a.RemoveDNS)
	a.after("remove the objects of docs/start.md", u.removeObjects)
	if err := a.Furnish(ctx); err != nil {
		return err
	}
	text, blocks, err := readReadme()
	if err != nil {
		return err
	}
	for _, step := range cluster.FirstSteps() {
		if !strings.Contains(text, "\n$ "+step+"\n") {
			return fmt.Errorf("docs/start.md does not have the command %q, which the cluster names at its start", step)
		}
	}
	for _, b := range blocks {
		if err := u.follow(ctx, b); err != nil {
			return fmt.Errorf("docs/start.md, %s: %w", b.section, err)
		}
	}
	if u.templates != 3 {
		return fmt.Errorf("docs/start.md has %d templates of pods, want 3", u.templates)
	}
	a.figures.add("time for docs/start.md", time.Since(started))
	return nil
}

// block is a fenced block of docs/start.md.
type block struct {
	section, language, text string
}

// readReadme returns docs/start.md, and its blocks from firstSection on.
func readReadme() (string, []block, error) {
	root, err := thirdparty.Root()
	if err != nil {
		return "", nil, err
	}
	raw, err := os.ReadFile(filepath.Join(root, "docs/start.md"))
	if err != nil {
		return "", nil, err
	}
	text := string(raw)
	_, rest, found := strings.Cut(text, "\n"+firstSection+"\n")
	if !found {
		return "", nil, fmt.Errorf("docs/start.md has no section %q", firstSection)
	}
	section := firstSection
	var blocks []block
	for i, part := range strings.Split(rest, "\n```") {
		if i%2 == 1 { // in a block
			language, content, _ := strings.Cut(part, "\n")
			blocks = append(blocks, block{section, language, content + "\n"})
			continue
		}
		for line := range strings.Lines(part) {
			if strings.HasPrefix(line, "### ") {
				section = strings.TrimSpace(line)
			}
		}
	}
	return text, blocks, nil
}

// follow does what a block says.
func (u *user) follow(ctx context.Context, b block) error {
	switch {
	case b.language == "json":
		_, err := libcni.ConfListFromBytes([]byte(b.text))
		return err
	case b.language == "":
		return u.runAll(ctx, b)
	case strings.Contains(b.text, "kind: "):
		return u.Apply(ctx, b.text)
	default:
		return u.useTemplate(ctx, b)
	}
}

// runAll runs the commands of a block. Each line that docs/start.md shows after a command must be printed.
func (u *user) runAll(ctx context.Context, b block) error {
	for _, part := range strings.Split("\n"+b.text, "\n$ ")[1:] {
		command, want, _ := strings.Cut(part, "\n")
		var output string
		try := func(ctx context.Context) (err error) {
			if output, err = u.Shell(ctx, command); err != nil {
				return err
			}
			return shows(output, want)
		}
		var err error
		if strings.HasPrefix(command, "kubectl get ") {
			err = eventually(ctx, podLimit, "the output of "+command, try)
		} else {
			err = try(ctx)
		}
		if err != nil {
			return err
		}
		u.story.Show(command, output)
		if strings.HasPrefix(command, "kubectl exec") {
			if err := u.askService(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// shows returns an error unless each line of want is in the output, except for what differs from one
// cluster to the next.
func shows(output, want string) error {
	var lines []string
	for line := range strings.Lines(output) {
		lines = append(lines, general(line))
	}
	for line := range strings.Lines(want) {
		if line = general(line); line != "" && !slices.Contains(lines, line) {
			return fmt.Errorf("%q is not in the output:\n%s", line, output)
		}
	}
	return nil
}

// general replaces what differs from one cluster to the next: addresses, generated names, nodes, ages,
// and the addresses of a pool that are in use or Warm.
func general(line string) string {
	for _, r := range []struct{ pattern, with string }{
		{`\b10\.20\.0\.[1-9]\d*\b`, "ADDRESS"},
		{`\b(web|coredns)-[0-9a-z]+-[0-9a-z]{5}\b`, "$1-ID"},
		{`\bn\d\b`, "NODE"},
		{`\b(\d+m)?\d+[sm]\b`, "AGE"},
		{`(\d+) +\d+ +True\b`, "$1 USED True"},
	} {
		line = regexp.MustCompile(r.pattern).ReplaceAllString(line, r.with)
	}
	return strings.Join(strings.Fields(line), " ")
}

// askService asks the Service six times from each of its pods, and each pod from outside.
func (u *user) askService(ctx context.Context) error {
	outside, _, err := u.Outside()
	if err != nil {
		return err
	}
	pods, err := u.podsOf(ctx, "web")
	if err != nil || len(pods) != 3 {
		return fmt.Errorf("the Deployment has %d pods, want 3: %w", len(pods), err)
	}
	nodes, backends := map[string]bool{}, map[string]bool{}
	const asks = 6
	for _, p := range pods {
		nodes[p.Spec.NodeName] = true
		script := fmt.Sprintf("for i in $(seq %d); do timeout 3 wget -q -O - http://web/hostname || exit; done", asks)
		said, err := u.Kubectl(ctx, "exec", p.Name, "--", "sh", "-c", script)
		if err != nil {
			return err
		}
		for _, backend := range strings.Fields(said) {
			backends[backend] = true
		}
		if n := len(strings.Fields(said)); n != asks {
			return fmt.Errorf("%d of %d requests of pod %s were answered: %s", n, asks, p.Name, said)
		}
		url := "http://" + netip.AddrPortFrom(netip.MustParseAddr(p.Status.PodIP), httpPort).String() + "/hostname"
		said, err = outside.Exec(ctx, "curl", "--silent", "--show-error", "--max-time", "3", url)
		if err != nil || strings.TrimSpace(said) != p.Name {
			return fmt.Errorf("pod %s says %q to the outside host: %w", p.Name, said, err)
		}
	}
	if len(nodes) < 2 || len(backends) < 2 {
		return fmt.Errorf("pods of %d nodes asked, and %d pods answered: this shows no way between nodes", len(nodes), len(backends))
	}
	u.story.Say("%d of %d requests to the Service succeed, by %d pods. The outside host reaches each pod.", asks*len(pods), asks*len(pods), len(backends))
	return nil
}

func (u *user) podsOf(ctx context.Context, app string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := u.api.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{"app": app})
	return list.Items, err
}

// useTemplate makes a pod, or a StatefulSet, of what docs/start.md shows of one, and judges its leases.
func (u *user) useTemplate(ctx context.Context, b block) error {
	u.templates++
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(b.text), &object.Object); err != nil {
		return err
	}
	name, pod, set := fmt.Sprintf("readme-%d", u.templates), object.Object, object.Object["spec"] != nil
	if set {
		pod, _, _ = unstructured.NestedMap(object.Object, "spec", "template")
	}
	container := map[string]any{"name": "app", "image": images.BusyboxImage, "command": []any{"httpd", "-f", "-h", "/etc"}}
	pod["spec"] = map[string]any{"terminationGracePeriodSeconds": int64(podGrace), "containers": []any{container}}
	labels := map[string]any{"app": name}
	object.SetNamespace(metav1.NamespaceDefault)
	object.SetName(name)
	err := unstructured.SetNestedMap(pod, labels, "metadata", "labels")
	object.SetAPIVersion("v1")
	object.SetKind("Pod")
	if set {
		object.SetAPIVersion("apps/v1")
		object.SetKind("StatefulSet")
		spec := map[string]any{"serviceName": name, "selector": map[string]any{"matchLabels": labels}, "template": pod}
		err = errors.Join(err, unstructured.SetNestedMap(object.Object, spec, "spec"))
	}
	if err := errors.Join(err, u.api.Create(ctx, object)); err != nil {
		return fmt.Errorf("make a pod of the template: %w", err)
	}
	want := []string{"underlay Bound"}
	if strings.Contains(b.text, "underlay-v6") {
		want = []string{"underlay Bound", "underlay-v6 Bound"}
	}
	if err := u.awaitLeases(ctx, name, want); err != nil || !set {
		return err
	}
	if _, err := u.Kubectl(ctx, "scale", "statefulset", name, "--replicas=0"); err != nil {
		return err
	}
	return u.awaitLeases(ctx, name, []string{"underlay Retained"})
}

// awaitLeases waits until the pods of an application run, and have exactly these leases.
func (u *user) awaitLeases(ctx context.Context, app string, want []string) error {
	return eventually(ctx, podLimit, fmt.Sprintf("leases %q of %s", want, app), func(ctx context.Context) error {
		leases := &v1alpha1.IPLeaseList{}
		if err := u.api.List(ctx, leases); err != nil {
			return err
		}
		var got []string
		for _, l := range leases.Items {
			if h := l.Spec.Holder; h != nil && h.Namespace == metav1.NamespaceDefault && strings.HasPrefix(h.Pod, app) {
				got = append(got, l.Spec.Pool+" "+string(l.Spec.State))
			}
		}
		slices.Sort(got)
		pods, err := u.podsOf(ctx, app)
		for _, p := range pods {
			if !isReady(&p) {
				err = errors.Join(err, fmt.Errorf("pod %s is not Ready", p.Name))
			}
		}
		if !slices.Equal(got, want) {
			err = errors.Join(err, fmt.Errorf("the leases are %q", got))
		}
		return err
	})
}

// removeObjects removes all that docs/start.md made, except the pools that leases may keep.
func (u *user) removeObjects(ctx context.Context) error {
	for _, args := range [][]string{
		{"deployment,statefulset,service", "--namespace=default", "--ignore-not-found", "web", "shop"},
		{"statefulset", "--namespace=default", "--all"},
		{"flsubnet,flreserved", "--all"},
	} {
		if _, err := u.Kubectl(ctx, append([]string{"delete", "--wait=false"}, args...)...); err != nil {
			return err
		}
	}
	return eventually(ctx, cleanupLimit, "the end of the objects of docs/start.md", func(ctx context.Context) error {
		pods, subnets := &corev1.PodList{}, &v1alpha1.IPSubnetList{}
		inDefault := client.InNamespace(metav1.NamespaceDefault)
		err := errors.Join(
			// The garbage collector gives them the 30 s of the examples.
			u.api.DeleteAllOf(ctx, &corev1.Pod{}, inDefault, client.GracePeriodSeconds(podGrace)),
			u.api.List(ctx, pods, inDefault), u.api.List(ctx, subnets),
		)
		if err == nil && len(pods.Items)+len(subnets.Items) > 0 {
			err = fmt.Errorf("%d IPSubnets, pods %s", len(subnets.Items), names(pods.Items))
		}
		return err
	})
}
