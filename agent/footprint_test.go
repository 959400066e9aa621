// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/fenceline/fenceline/test/check"
)

func TestThePagesOfTheStartAreGivenBack(t *testing.T) {
	// The start of an agent registers kinds that it never meets.
	check.OK(t, clientgoscheme.AddToScheme(runtime.NewScheme()))
	before := residentFile(t)
	check.OK(t, dropExecutable())
	after := residentFile(t)
	check.That(t, after <= before/2, "%d kB of files were in memory, and %d kB are", before, after)
}

func TestOnlyMappingsWithoutAWrittenPageAreGivenBack(t *testing.T) {
	const smaps = `00400000-01534000 r-xp 00000000 fe:00 12 /agent
Rss:               12000 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
01534000-02000000 r--p 01134000 fe:00 12 /agent
Anonymous:             4 kB
02000000-02219000 r--p 01c00000 fe:00 12 /agent
Anonymous:             0 kB
02219000-022e2000 rw-p 01e19000 fe:00 12 /agent
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 13 /other
Anonymous:             0 kB
`
	got, err := unwrittenMappings(strings.NewReader(smaps), "/agent")
	want := []mapping{{0x400000, 0x1534000}, {0x2000000, 0x2219000}}
	check.That(t, err == nil && slices.Equal(got, want), "got %x, %v, want %x", got, err, want)
}

// residentFile is RssFile of this process, in kB.
func residentFile(t *testing.T) int {
	t.Helper()
	status := check.Value(os.ReadFile("/proc/self/status"))(t)
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	return check.Value(strconv.Atoi(strings.Fields(rest)[0]))(t)
}
