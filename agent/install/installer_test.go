// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

// keeper is an installer that keeps a plugin and a network configuration in two directories.
type keeper struct {
	*Installer
	t        *testing.T
	clock    *testclock.FakePassiveClock
	recorder *events.FakeRecorder
	runtime  atomic.Value
	ready    func(context.Context) bool
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	k := &keeper{
		t: t, clock: testclock.NewFakePassiveClock(time.Unix(1e9, 0)), recorder: events.NewFakeRecorder(100),
		ready: func(context.Context) bool { return true },
	}
	k.runtime.Store("containerd://2.4.2")
	source := filepath.Join(t.TempDir(), "10-fenceline.conflist")
	check.OK(t, os.WriteFile(source, []byte(conflist), 0o600))
	k.Installer = &Installer{
		PluginFile: plugin(t, "v1"), BinDir: t.TempDir(), ConflistFile: source, ConfDir: t.TempDir(),
		Log: testr.New(t), Clock: k.clock,
	}
	return k
}

// start starts to keep the files, and returns a function that ends it and returns its error.
func (k *keeper) start() (end func() error) {
	ctx, stop := context.WithCancel(k.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.keep(ctx) }()
	return func() error { stop(); return <-ended }
}

func (k *keeper) keep(ctx context.Context) error {
	runtime := func(context.Context) (string, error) { return k.runtime.Load().(string), nil }
	return k.Keep(ctx, KeepOptions{Reporter: event.Reporter{Node: "n1", Events: k.recorder, Log: k.Log}, Ready: k.ready, Runtime: runtime})
}

func (k *keeper) pluginPath() string   { return filepath.Join(k.BinDir, "fenceline") }
func (k *keeper) conflistPath() string { return filepath.Join(k.ConfDir, "10-fenceline.conflist") }

// await waits until a file has the content.
func (k *keeper) await(path, content string) {
	k.t.Helper()
	check.Eventually(k.t, time.Minute, path, func() error {
		got, err := os.ReadFile(path)
		if err == nil && string(got) != content {
			err = fmt.Errorf("it holds %q, want %q", got, content)
		}
		return err
	})
}

func TestAConfigurationThatComesFirstIsReportedOnce(t *testing.T) {
	k := newKeeper(t)
	for _, name := range []string{"00-readme.txt", "05-calico.conflist", "20-later.conf"} {
		check.OK(t, os.WriteFile(filepath.Join(k.ConfDir, name), []byte("{}"), 0o600))
	}
	end := k.start()
	k.await(k.conflistPath(), conflist)
	e := k.event()
	check.That(t, strings.HasPrefix(e, "Normal NetworkNotFirst 05-calico.conflist comes before 10-fenceline.conflist"), "the event is %q", e)
	check.OK(t, os.Remove(filepath.Join(k.ConfDir, "05-calico.conflist")))
	check.OK(t, os.WriteFile(filepath.Join(k.ConfDir, "06-cilium.conf"), []byte("{}"), 0o600))
	check.Says(t, k.event(), "06-cilium.conf comes before")
	err := end()
	check.That(t, errors.Is(err, context.Canceled) && len(k.recorder.Events) == 0, "ended with %v and %d more events", err, len(k.recorder.Events))
}

// event returns the next event.
func (k *keeper) event() string {
	k.t.Helper()
	return check.Receive(k.t, time.Minute, "an event", k.recorder.Events)
}

func TestAChangedOrRemovedFileIsPutBackWithOneEvent(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"removed": os.Remove,
		"cut off": func(p string) error { return os.Truncate(p, 1) },
		"empty":   func(p string) error { return os.Truncate(p, 0) },
		"other bytes, same size": func(p string) error {
			b, err := os.ReadFile(p)
			b[0]++
			return errors.Join(err, os.WriteFile(p, b, 0o755))
		},
		"replaced by rename": func(p string) error {
			return errors.Join(os.WriteFile(p+".new", []byte("v9"), 0o755), os.Rename(p+".new", p))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeeper(t)
			end := k.start()
			k.await(k.pluginPath(), "v1")
			k.await(k.conflistPath(), conflist)
			for _, row := range []struct{ path, content, says string }{
				{k.pluginPath(), "v1", "Warning PluginRestored the CNI plugin " + k.pluginPath()},
				{k.conflistPath(), conflist, "Warning NetworkRestored the network configuration " + k.conflistPath()},
			} {
				check.OK(t, damage(row.path))
				e := k.event()
				check.That(t, strings.HasPrefix(e, row.says), "the event is %q, want %q", e, row.says)
				k.await(row.path, row.content)
			}
			check.Is(t, end(), context.Canceled, "ended with")
			check.Equal(t, len(k.recorder.Events), 0, "more events:")
		})
	}
}

// Another program may remove the file each time.
func TestAFileThatIsRemovedAgainAndAgainMakesOneEventInTenMinutes(t *testing.T) {
	k := newKeeper(t)
	k.tell = &teller{event.Reporter{Node: "n1", Events: k.recorder, Log: k.Log}}
	remove := func() {
		t.Helper()
		check.OK(t, errors.Join(k.EnsurePlugin(), os.Remove(k.pluginPath()), k.EnsurePlugin()))
	}
	for range 50 {
		remove()
	}
	k.event()
	check.Equal(t, len(k.recorder.Events), 0, "further events:")
	k.clock.SetTime(k.clock.Now().Add(tellInterval))
	remove()
	check.Says(t, k.event(), "50 times since the last event")
}

func TestAnUnchangedPluginIsNotReadAgain(t *testing.T) {
	k := newKeeper(t)
	for range 2 { // the second look reads what the first has written
		check.OK(t, k.EnsurePlugin())
	}
	check.OK(t, os.Remove(k.PluginFile))
	check.Is(t, k.EnsurePlugin(), nil, "the agent reads its own plugin again:")
}

// Running pods need an agent, also if the runtime cannot be told of the network.
func TestADirectoryThatTakesNoFileEndsNoAgentAndMakesOneEvent(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	bin, conf := k.BinDir, k.ConfDir
	k.BinDir, k.ConfDir = filepath.Join(bin, "none"), filepath.Join(conf, "none")
	end := k.start()
	for _, want := range []string{"Warning PluginNotInstalled", "Warning NetworkNotInstalled"} {
		e := k.event()
		check.That(t, strings.HasPrefix(e, want), "the event is %q, want %q", e, want)
		check.Says(t, e, "no such file or directory", "cni.")
	}
	check.OK(t, errors.Join(os.Mkdir(k.BinDir, 0o755), os.Mkdir(k.ConfDir, 0o755)))
	k.await(k.pluginPath(), "v1")
	k.await(k.conflistPath(), conflist)
	check.Is(t, end(), context.Canceled, "ended with")
	check.Equal(t, len(k.recorder.Events), 0, "more events:")
}

func TestNoConflistIsInstalledBeforeADDCanBeServed(t *testing.T) {
	k := newKeeper(t)
	ctx, stop := context.WithCancel(t.Context())
	k.ready = func(context.Context) bool { stop(); return false }
	err := k.keep(ctx)
	files, _ := os.ReadDir(k.ConfDir)
	check.That(t, len(files) == 0 && errors.Is(err, context.Canceled), "installed %v, %v", files, err)
}

func TestAPluginThatCannotBeInstalledIsTriedAgain(t *testing.T) {
	k := newKeeper(t)
	k.BinDir = filepath.Join(k.BinDir, "bin")
	err := k.EnsurePlugin()
	check.Is(t, err, os.ErrNotExist, "installed without its directory:")
	check.Says(t, err, k.BinDir)
	again := fmt.Sprint(k.EnsurePlugin()) // the names of temporary files are random
	check.That(t, again == fmt.Sprint(err) && !strings.Contains(again, tempPrefix), "got %v, then %s", err, again)
	check.OK(t, os.Mkdir(k.BinDir, 0o755))
	check.Is(t, k.EnsurePlugin(), nil, "not installed:")
	wantFile(t, k.pluginPath(), "v1", 0o755)
}
