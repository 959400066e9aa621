// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"testing"
)

func TestAnAgentIsReadyOnceADDCanBeServed(t *testing.T) {
	noPlugin := errors.New("no directory")
	for _, row := range []struct {
		name        string
		synced, key bool
		plugin      error
		ready       bool
	}{
		{"everything is there", true, true, nil, true},
		{"the caches are not synced", false, true, nil, false},
		{"there is no claim key", true, false, nil, false},
		{"the plugin cannot be installed", true, true, noPlugin, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := Ready{
				CachesSynced:  func(context.Context) bool { return row.synced },
				KeySettled:    func() bool { return row.key },
				InstallPlugin: func() error { return row.plugin },
			}
			err := r.Check(t.Context())
			if (err == nil) != row.ready || row.plugin != nil && !errors.Is(err, row.plugin) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The first ADD may start another watch.
func TestCachesThatWereSyncedOnceStaySynced(t *testing.T) {
	synced := true
	r := Ready{
		CachesSynced: func(context.Context) bool { return synced },
		KeySettled:   func() bool { return true }, InstallPlugin: func() error { return nil },
	}
	for range 2 {
		if err := r.Check(t.Context()); err != nil {
			t.Error(err)
		}
		synced = false
	}
}
