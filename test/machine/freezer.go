// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/must"
)

// freezer is the file that freezes a cgroup with all below it. A frozen process
// runs nothing, not even the handling of SIGKILL under version 1; the kernel's
// network stack goes on answering for it.
type freezer struct {
	dir     string
	unified bool
}

func (f freezer) write(ctx context.Context, frozen bool) {
	file, value := "freezer.state", "THAWED"
	if frozen {
		value = "FROZEN"
	}
	if f.unified {
		file, value = "cgroup.freeze", "0"
		if frozen {
			value = "1"
		}
	}
	must.Done(os.WriteFile(filepath.Join(f.dir, file), []byte(value), 0), "write %s to %s of %s", value, file, f.dir)
	f.wait(ctx, frozen)
}

// wait returns when all processes have reached the state.
func (f freezer) wait(ctx context.Context, frozen bool) {
	must.OK(await.Until(ctx, 10*time.Second, 5*time.Millisecond, "cgroup "+f.dir, func(context.Context) error {
		is, err := f.frozen()
		if err != nil {
			return await.Never(err)
		}
		if is != frozen {
			return fmt.Errorf("frozen: %t, want %t", is, frozen)
		}
		return nil
	}))
}

func (f freezer) frozen() (bool, error) {
	if f.unified {
		data, err := os.ReadFile(filepath.Join(f.dir, "cgroup.events"))
		return strings.Contains(string(data), "frozen 1"), err
	}
	data, err := os.ReadFile(filepath.Join(f.dir, "freezer.state"))
	return strings.TrimSpace(string(data)) == "FROZEN", err
}

// thawAll thaws everything below the group, so that its processes can die.
func thawAll(ctx context.Context, group string) {
	for _, h := range hierarchies() {
		if !h.has("freezer") {
			continue
		}
		dirs, err := directories(filepath.Join(h.root, group))
		must.Done(err, "thaw %s", group)
		for _, dir := range dirs {
			(freezer{dir: dir, unified: h.unified}).write(ctx, false)
		}
	}
}
