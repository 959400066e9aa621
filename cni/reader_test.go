// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

func TestACallEndsWhenNobodyReadsItsResult(t *testing.T) {
	r, w, err := os.Pipe()
	check.OK(t, err)
	defer w.Close()
	ctx := whileRead(t.Context(), w)
	// What has been written and not been read yet is no reason.
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
		t.Fatal("the call ended while its reader was there")
	case <-time.After(50 * time.Millisecond): // that nothing happens has no event to wait for
	}
	r.Close()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("a minute after its reader left the call goes on")
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errUnread) {
		t.Errorf("it ended by %v", cause)
	}
}

func TestACallWhoseResultGoesIntoAFileGoesOn(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "result")
	check.OK(t, err)
	defer f.Close()
	select {
	case <-whileRead(t.Context(), f).Done():
		t.Fatal("the call ended")
	case <-time.After(50 * time.Millisecond): // as above
	}
}
