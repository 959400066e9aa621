package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestThePagesOfTheStartAreGivenBack(t *testing.T) {
	before := residentFile(t)
	if err := dropExecutable(); err != nil {
		t.Fatal(err)
	}
	if after := residentFile(t); after > before/2 {
		t.Errorf("%d kB of files were in memory, and %d kB are", before, after)
	}
}

// residentFile is RssFile of this process, in kB.
func residentFile(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	kB, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kB
}
