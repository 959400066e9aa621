// SPDX-License-Identifier: Apache-2.0

package wireshark

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
func Judge(ctx context.Context, dir string) (Verdict, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.pcap"))
	if err != nil {
		return Verdict{}, fmt.Errorf("judge the frames in %s: %w", dir, err)
	}
	v := Verdict{Files: len(files)}
	var distinct []Frame
	var origin []string // the file of each distinct frame
	known := map[string]bool{}
	for _, path := range files {
		all, err := readFile(path)
		if err != nil {
			return Verdict{}, err
		}
		v.Frames += len(all)
		for _, f := range all {
			if !known[string(f.Data)] {
				known[string(f.Data)] = true
				distinct, origin = append(distinct, f), append(origin, filepath.Base(path))
			}
		}
	}
	if v.Distinct = len(distinct); v.Distinct == 0 {
		return Verdict{}, fmt.Errorf("judge the frames in %s: there is none", dir)
	}
	faults, err := Faults(ctx, distinct)
	for _, f := range faults {
		v.Faults = append(v.Faults, fmt.Sprintf("%s: %s: %x", origin[f.Frame], f.Text, distinct[f.Frame].Data))
	}
	return v, err
}

func readFile(path string) (_ []Frame, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("judge a record: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	all, err := Read(file)
	if err != nil {
		return nil, fmt.Errorf("judge %s: %w", path, err)
	}
	return all, nil
}
