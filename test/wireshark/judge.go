// SPDX-License-Identifier: Apache-2.0

package wireshark

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fenceline/fenceline/test/must"
)

// Verdict is what Wireshark finds in the files of a directory.
type Verdict struct {
	Files, Frames int
	// Distinct is the number of frames with other bytes than all frames before. Only these are judged.
	Distinct int
	// Faults has a text for each fault, which begins with the name of the file.
	Faults []string
}

func (v Verdict) String() string {
	return fmt.Sprintf("%d frames of %d networks, %d of them distinct: tshark finds %d faults\n%s",
		v.Frames, v.Files, v.Distinct, len(v.Faults), strings.Join(v.Faults, "\n"))
}

// Judge reads the files of a directory whose names end with .pcap. It is an error if they have no
// frame.
func Judge(ctx context.Context, dir string) (v Verdict, err error) {
	defer must.CatchIn(&err, "judge the frames in %s", dir)
	files := must.Value(filepath.Glob(filepath.Join(dir, "*.pcap")))
	var distinct []Frame
	var origin []string // the file of each distinct frame
	known := map[string]bool{}
	for _, path := range files {
		all := readFile(path)
		v.Frames += len(all)
		for _, f := range all {
			if !known[string(f.Data)] {
				known[string(f.Data)] = true
				distinct, origin = append(distinct, f), append(origin, filepath.Base(path))
			}
		}
	}
	must.That(len(distinct) > 0, "there is none")
	v.Files, v.Distinct = len(files), len(distinct)
	faults, err := Faults(ctx, distinct)
	for _, f := range faults {
		v.Faults = append(v.Faults, fmt.Sprintf("%s: %s: %x", origin[f.Frame], f.Text, distinct[f.Frame].Data))
	}
	return v, err
}

func readFile(path string) []Frame {
	file := must.Value(os.Open(path))
	defer file.Close()
	all, err := Read(file)
	must.Done(err, "judge %s", path)
	return all
}
