// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/process"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// A real Prometheus scrapes agents and a controller. A foreign host has the only address of a pool,
// so a pod waits for it. Another pod sends from a foreign address. Then each query of each panel
// returns a series.
func TestEachPanelOfTheDashboardsShowsSomething(t *testing.T) {
	t.Parallel()
	ctx := within(t, 2*nodes.Limit)
	ports := check.Value(controlplane.FreePorts(2))(t)
	c := nodes.New(t, 2)
	c.ControllerMetrics = fmt.Sprintf("127.0.0.1:%d", ports[0])
	c.StartController()
	targets := map[string]string{"controller": c.ControllerMetrics}
	for _, n := range c.Nodes {
		proxy := httptest.NewServer(n.MetricsProxy())
		t.Cleanup(proxy.Close)
		targets[n.Name] = proxy.Listener.Addr().String()
	}
	prometheus := scraped(t, fmt.Sprintf("127.0.0.1:%d", ports[1]), targets)

	pool := c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.99")
	pool.Spec.Warm = ptr.To[int64](1)
	change(ctx, t, c, pool)
	c.NamedPool("contested", "10.66.0.0/24", "10.66.0.200")
	c.Host(netip.MustParsePrefix("10.66.0.200/24"))
	check.OK(t, c.Create(ctx, &v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: "floor"}, Spec: v1alpha1.IPSubnetSpec{Subnet: "10.67.0.0/24"}}))
	pods := begin(ctx, t, c, crowd(t, c, "web", 2*len(c.Nodes)))
	waiting := check.Value(c.Nodes[0].NewPod(ctx, "waits", nodes.Wants("contested")))(t)
	done := make(chan error, 1)
	patience, end := context.WithCancel(ctx)
	go func() {
		_, err := c.Nodes[0].Begin(patience, waiting)
		done <- err
	}()
	defer func() {
		end()
		check.That(t, <-done != nil, "a pod got the address of a foreign host")
	}()
	check.OK(t, pods[0].AddAddr("eth0", netip.MustParsePrefix("10.66.0.150/24")))
	stray := pods[0].Command(ctx, "ping", "-q", "-i", "0.2", "-I", "10.66.0.150", pods[1].Addr.String())
	check.OK(t, stray.Start())
	defer func() {
		check.OK(t, stray.Process.Kill())
		_ = stray.Wait()
	}()

	for _, file := range []string{"pools.json", "conflicts.json"} {
		for title, queries := range panels(t, file) {
			for _, query := range queries {
				c.Eventually(t, fmt.Sprintf("panel %q of %s shows something: %s", title, file, query), func() error { return prometheus.shows(ctx, t, query) })
			}
		}
	}
}

// panels returns the queries of a dashboard by the title of their panel, without variables.
func panels(t *testing.T, file string) map[string][]string {
	t.Helper()
	root := check.Value(thirdparty.Root())(t)
	text := string(check.Value(os.ReadFile(filepath.Join(root, "charts", "fenceline", "files", "dashboards", file)))(t))
	text = strings.NewReplacer("$__rate_interval", "10s", "$pool", ".*").Replace(text)
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ RefID, Expr string }
		}
	}
	check.OK(t, json.Unmarshal([]byte(text), &board))
	all := map[string][]string{}
	for i, p := range board.Panels {
		if p.ID != i+1 || len(p.Targets) == 0 || all[p.Title] != nil {
			t.Errorf("%s: panel %d has the ID %d, the title %q and %d queries", file, i, p.ID, p.Title, len(p.Targets))
		}
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], target.Expr)
		}
	}
	check.Must(t, len(all) >= 10, "%s has only %d panels", file, len(all))
	return all
}

// prometheus is the URL of a server.
type prometheus string

// scraped starts a Prometheus that scrapes targets by instance, until the end of the test.
func scraped(t *testing.T, address string, targets map[string]string) prometheus {
	t.Helper()
	dir := t.TempDir()
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: fenceline\n  honor_labels: true\n  static_configs:\n"
	for instance, target := range targets {
		config += fmt.Sprintf("  - {targets: [%q], labels: {instance: %q}}\n", target, instance)
	}
	check.OK(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600))
	builder := check.Value(thirdparty.NewBuilder(os.Stderr))(t)
	program := filepath.Join(check.Value(builder.Dir(t.Context(), thirdparty.Prometheus))(t), "usr", "bin", "prometheus")
	log := filepath.Join(dir, "log")
	p := check.Value(process.Start("prometheus", exec.CommandContext(context.Background(), program,
		"--config.file="+filepath.Join(dir, "config.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address), log))(t)
	t.Cleanup(func() {
		check.OK(t, p.Kill(context.Background()))
		if t.Failed() {
			t.Logf("log of Prometheus:\n%s", check.Value(os.ReadFile(log))(t))
		}
	})
	return prometheus("http://" + address)
}

// shows returns an error unless a query returns a series. A query that cannot be parsed ends the test.
func (p prometheus) shows(ctx context.Context, t *testing.T, query string) error {
	request := check.Value(http.NewRequestWithContext(ctx, http.MethodGet, string(p)+"/api/v1/query?query="+url.QueryEscape(query), nil))(t)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	check.Must(t, response.StatusCode != http.StatusBadRequest, "%s: %s", query, body)
	var answer struct{ Data struct{ Result []any } }
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%w: %s", err, body)
	}
	if len(answer.Data.Result) == 0 {
		return errors.New("it returns nothing")
	}
	return nil
}
