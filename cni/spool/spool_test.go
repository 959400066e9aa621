// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

func del(container, iface string) agentapi.DelRequest {
	return agentapi.DelRequest{
		Attachment: agentapi.Attachment{ContainerID: container, Interface: iface},
		Pod:        agentapi.Pod{Namespace: "default", Name: "web-0", UID: "u1"},
		Network:    agentapi.Network{Name: "underlay", Type: "macvlan"},
	}
}

func TestWhatIsPutCanBeListedReadAndRemoved(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), "not-yet", "spool"))
	want := del("abc123", "net1@odd")
	check.OK(t, d.Put(want))
	list, err := d.List()
	check.Must(t, err == nil && reflect.DeepEqual(list, []agentapi.Attachment{want.Attachment}), "List() = %v, %v", list, err)
	got, ok, err := d.Get(want.Attachment)
	check.Must(t, err == nil && ok && reflect.DeepEqual(got, want), "Get() = %+v, %v, %v", got, ok, err)
	for range 2 {
		check.OK(t, d.Remove(want.Attachment))
	}
	_, ok, err = d.Get(want.Attachment)
	check.Must(t, !ok && err == nil, "after Remove: Get() = %v, %v", ok, err)
}

func TestARepeatedDELReplacesItself(t *testing.T) {
	d := Dir(t.TempDir())
	for _, netns := range []string{"/run/netns/a", ""} {
		r := del("abc", "eth0")
		r.NetNS = netns
		check.OK(t, d.Put(r))
	}
	entries, err := os.ReadDir(string(d))
	check.Must(t, err == nil && len(entries) == 1, "%d files, %v; want 1 and no temporary one", len(entries), err)
	r, _, _ := d.Get(del("abc", "eth0").Attachment)
	check.That(t, r.NetNS == "", "the first DEL is still there: %+v", r)
}

func TestASpoolThatDoesNotExistIsEmpty(t *testing.T) {
	list, err := Dir(filepath.Join(t.TempDir(), "none")).List()
	check.That(t, err == nil && len(list) == 0, "List() = %v, %v", list, err)
}

func TestFilesThatAreNoCallsAreNotListed(t *testing.T) {
	d := Dir(t.TempDir())
	for _, name := range []string{".put-123", "README", "@eth0.json", "abc@.json", "abc.json", ".abc@eth0.json"} {
		check.OK(t, os.WriteFile(d.path(name), []byte("{"), 0o600))
	}
	list, err := d.List()
	check.That(t, err == nil && len(list) == 0, "List() = %v, %v", list, err)
}

func TestAFileThatDoesNotHoldItsOwnCallIsMalformed(t *testing.T) {
	for name, text := range map[string]string{
		"cut off":                 `{"containerID":"abc","inter`,
		"of another attachment":   `{"containerID":"other","interface":"eth0"}`,
		"of no attachment at all": `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			d := Dir(t.TempDir())
			check.OK(t, os.WriteFile(d.path("abc@eth0.json"), []byte(text), 0o600))
			_, ok, err := d.Get(agentapi.Attachment{ContainerID: "abc", Interface: "eth0"})
			check.That(t, !ok && errors.Is(err, ErrMalformed) && strings.Contains(err.Error(), "abc@eth0.json"), "Get() = %v, %v", ok, err)
		})
	}
}

func TestAnAttachmentCannotLeaveTheSpool(t *testing.T) {
	d := Dir(t.TempDir())
	for _, a := range []agentapi.Attachment{
		{ContainerID: "../../etc/x", Interface: "eth0"},
		{ContainerID: "abc", Interface: "../eth0"},
		{ContainerID: "a@b", Interface: "eth0"},
		{ContainerID: ".hidden", Interface: "eth0"},
		{ContainerID: "", Interface: "eth0"},
		{ContainerID: "abc", Interface: ""},
	} {
		check.That(t, d.Put(agentapi.DelRequest{Attachment: a}) != nil, "%+v was spooled", a)
	}
}

// FuzzFileNames: each attachment has a file name of its own in the spool, or none. Each file name that
// is read is the one of its attachment.
func FuzzFileNames(f *testing.F) {
	for _, names := range [][2]string{{"c1", "eth0"}, {"c1", "net1@odd"}, {"a@b", "eth0"}, {"..", "eth0"}, {"../a", "b"}, {"", ""}, {".put-1", "a"}, {"a", "../../b"}} {
		f.Add(names[0], names[1])
	}
	f.Fuzz(func(t *testing.T, container, iface string) {
		a := agentapi.Attachment{ContainerID: container, Interface: iface}
		if name, err := fileName(a); err == nil {
			got, ok := attachment(name)
			check.That(t, ok && got == a, "%+v is in %q, which is of %+v, %v", a, name, got, ok)
			safe := filepath.IsLocal(name) && !strings.Contains(name, "/") && !strings.HasPrefix(name, tempPrefix)
			check.That(t, safe, "%+v is in %q", a, name)
		}
		if got, ok := attachment(container); ok && !strings.Contains(container, "/") {
			name, err := fileName(got)
			check.That(t, err == nil && name == container, "%q is of %+v, which is in %q, %v", container, got, name, err)
		}
	})
}
