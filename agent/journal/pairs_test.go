// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

func TestPairsOutliveTheAgent(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if got := j.Pairs(); len(got) != 0 {
		t.Fatalf("a new journal holds pairs %v", got)
	}
	want := []Pair{
		{Pool: "v4", Parent: "eth1", Used: time.Unix(1000, 0).UTC()},
		{Pool: "v6", Parent: "eth1.100", Used: time.Unix(2000, 0).UTC(), Before: time.Unix(1500, 0).UTC()},
	}
	check.OK(t, j.PutPairs(want))
	j = reopen(t, j, dir)
	if got := j.Pairs(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPairsThatCannotBeReadAreLearntAnew(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	check.OK(t, j.PutPairs([]Pair{{Pool: "v4", Parent: "eth1"}}))
	check.OK(t, os.WriteFile(filepath.Join(dir, pairsFile), []byte("{}"), 0o600))
	j = reopen(t, j, dir)
	if len(j.Pairs()) != 0 || len(j.Corrupt()) != 1 {
		t.Errorf("pairs %v, corrupt files %v", j.Pairs(), j.Corrupt())
	}
}
