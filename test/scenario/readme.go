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

// playReadme: docs/start.md is true from its first pool on, on a cluster of `make cluster-up`.
func playReadme(ctx context.Context, a *act) {
	u := &user{act: a}
	for _, pool := range []string{"underlay", "underlay-backup", "underlay-v6"} {
		a.after("remove pool "+pool, func(ctx context.Context) { a.removePool(ctx, pool) })
	}
	a.after("remove CoreDNS", func(ctx context.Context) { check(a.RemoveDNS(ctx)) })
	a.after("remove the objects of docs/start.md", u.removeObjects)
	check(a.Furnish(ctx))
	text, blocks := readReadme()
	for _, step := range cluster.FirstSteps() {
		must(strings.Contains(text, "\n$ "+step+"\n"), "docs/start.md does not have the command %q, which the cluster names at its start", step)
	}
	for _, b := range blocks {
		during(func() { u.follow(ctx, b) }, "docs/start.md, %s", b.section)
	}
	must(u.templates == 3, "docs/start.md has %d templates of pods, want 3", u.templates)
}

// block is a fenced block of docs/start.md.
type block struct {
	section, language, text string
}

// readPage returns the text of a document.
func readPage(name string) string {
	return string(value(os.ReadFile(filepath.Join(value(thirdparty.Root()), name))))
}

// readReadme returns docs/start.md, and its blocks from firstSection on.
func readReadme() (string, []block) {
	text := readPage("docs/start.md")
	_, rest, found := strings.Cut(text, "\n"+firstSection+"\n")
	must(found, "docs/start.md has no section %q", firstSection)
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
	return text, blocks
}

// follow does what a block says.
func (u *user) follow(ctx context.Context, b block) {
	switch {
	case b.language == "json":
		value(libcni.ConfListFromBytes([]byte(b.text)))
	case b.language == "":
		u.runAll(ctx, b)
	case strings.Contains(b.text, "kind: "):
		check(u.Apply(ctx, b.text))
	default:
		u.useTemplate(ctx, b)
	}
}

// runAll runs the commands of a block. Each line that docs/start.md shows after a command must be printed.
func (u *user) runAll(ctx context.Context, b block) {
	for _, part := range strings.Split("\n"+b.text, "\n$ ")[1:] {
		command, want, _ := strings.Cut(part, "\n")
		var output string
		try := func(ctx context.Context) {
			output = value(u.Shell(ctx, command))
			check(shows(output, want))
		}
		if strings.HasPrefix(command, "kubectl get ") {
			eventually(ctx, podLimit, "the output of "+command, try)
		} else {
			try(ctx)
		}
		u.story.Show(command, output)
		if strings.HasPrefix(command, "kubectl exec") {
			u.askService(ctx)
		}
	}
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
		{`\b(web|coredns|fenceline-test)-[0-9a-z]+-[0-9a-z]{5}\b`, "$1-ID"},
		{`\bn\d\b`, "NODE"},
		{`\b(\d+m)?\d+[sm]\b`, "AGE"},
		{`(\d+) +\d+ +True\b`, "$1 USED True"},
	} {
		line = regexp.MustCompile(r.pattern).ReplaceAllString(line, r.with)
	}
	return strings.Join(strings.Fields(line), " ")
}

// askService asks the Service six times from each of its pods, and each pod from outside.
func (u *user) askService(ctx context.Context) {
	outside, _, err := u.Outside()
	check(err)
	pods := u.podsOf(ctx, "web")
	must(len(pods) == 3, "the Deployment has %d pods, want 3", len(pods))
	nodes, backends := map[string]bool{}, map[string]bool{}
	const asks = 6
	for _, p := range pods {
		nodes[p.Spec.NodeName] = true
		script := fmt.Sprintf("for i in $(seq %d); do timeout 3 wget -q -O - http://web/hostname || exit; done", asks)
		said := value(u.Kubectl(ctx, "exec", p.Name, "--", "sh", "-c", script))
		for _, backend := range strings.Fields(said) {
			backends[backend] = true
		}
		must(len(strings.Fields(said)) == asks, "not all of %d requests of pod %s were answered: %s", asks, p.Name, said)
		url := "http://" + netip.AddrPortFrom(netip.MustParseAddr(p.Status.PodIP), httpPort).String() + "/hostname"
		said = value(outside.Exec(ctx, "curl", "--silent", "--show-error", "--max-time", "3", url))
		must(strings.TrimSpace(said) == p.Name, "pod %s says %q to the outside host", p.Name, said)
	}
	must(len(nodes) >= 2 && len(backends) >= 2, "pods of %d nodes asked, and %d pods answered: this shows no way between nodes", len(nodes), len(backends))
	u.story.Say("%d of %d requests to the Service succeed, by %d pods. The outside host reaches each pod.", asks*len(pods), asks*len(pods), len(backends))
}

func (u *user) podsOf(ctx context.Context, app string) []corev1.Pod {
	list := &corev1.PodList{}
	check(u.api.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{"app": app}))
	return list.Items
}

// useTemplate makes a pod, or a StatefulSet, of what docs/start.md shows of one, and judges its leases.
func (u *user) useTemplate(ctx context.Context, b block) {
	u.templates++
	object := &unstructured.Unstructured{}
	check(yaml.UnmarshalStrict([]byte(b.text), &object.Object))
	name, pod, set := fmt.Sprintf("readme-%d", u.templates), object.Object, object.Object["spec"] != nil
	if set {
		pod, _, _ = unstructured.NestedMap(object.Object, "spec", "template")
	}
	container := map[string]any{"name": "app", "image": images.BusyboxImage, "command": []any{"httpd", "-f", "-h", "/etc"}}
	pod["spec"] = map[string]any{"terminationGracePeriodSeconds": int64(podGrace), "containers": []any{container}}
	labels := map[string]any{"app": name}
	object.SetNamespace(metav1.NamespaceDefault)
	object.SetName(name)
	check(unstructured.SetNestedMap(pod, labels, "metadata", "labels"))
	object.SetAPIVersion("v1")
	object.SetKind("Pod")
	if set {
		object.SetAPIVersion("apps/v1")
		object.SetKind("StatefulSet")
		spec := map[string]any{"serviceName": name, "selector": map[string]any{"matchLabels": labels}, "template": pod}
		check(unstructured.SetNestedMap(object.Object, spec, "spec"))
	}
	did(u.api.Create(ctx, object), "make a pod of the template")
	want := []string{"underlay Bound"}
	if strings.Contains(b.text, "underlay-v6") {
		want = []string{"underlay Bound", "underlay-v6 Bound"}
	}
	u.awaitLeases(ctx, name, want)
	if set {
		value(u.Kubectl(ctx, "scale", "statefulset", name, "--replicas=0"))
		u.awaitLeases(ctx, name, []string{"underlay Retained"})
	}
}

// awaitLeases waits until the pods of an application run, and have exactly these leases.
func (u *user) awaitLeases(ctx context.Context, app string, want []string) {
	eventually(ctx, podLimit, fmt.Sprintf("leases %q of %s", want, app), func(ctx context.Context) {
		leases := &v1alpha1.IPLeaseList{}
		check(u.api.List(ctx, leases))
		var got []string
		for _, l := range leases.Items {
			if h := l.Spec.Holder; h != nil && h.Namespace == metav1.NamespaceDefault && strings.HasPrefix(h.Pod, app) {
				got = append(got, l.Spec.Pool+" "+string(l.Spec.State))
			}
		}
		slices.Sort(got)
		must(slices.Equal(got, want), "the leases are %q", got)
		for _, p := range u.podsOf(ctx, app) {
			must(isReady(&p), "pod %s is not Ready", p.Name)
		}
	})
}

// removeObjects removes all that docs/start.md made, except the pools that leases may keep.
func (u *user) removeObjects(ctx context.Context) {
	for _, args := range [][]string{
		{"deployment,statefulset,service", "--namespace=default", "--ignore-not-found", "web", "shop"},
		{"statefulset", "--namespace=default", "--all"},
		{"flsubnet,flreserved", "--all"},
	} {
		value(u.Kubectl(ctx, append([]string{"delete", "--wait=false"}, args...)...))
	}
	eventually(ctx, cleanupLimit, "the end of the objects of docs/start.md", func(ctx context.Context) {
		pods, subnets := &corev1.PodList{}, &v1alpha1.IPSubnetList{}
		inDefault := client.InNamespace(metav1.NamespaceDefault)
		check(errors.Join(
			// The garbage collector gives them the 30 s of the examples.
			u.api.DeleteAllOf(ctx, &corev1.Pod{}, inDefault, client.GracePeriodSeconds(podGrace)),
			u.api.List(ctx, pods, inDefault), u.api.List(ctx, subnets),
		))
		must(len(pods.Items)+len(subnets.Items) == 0, "%d IPSubnets, pods %s", len(subnets.Items), names(pods.Items))
	})
}
