// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

const (
	// mostRows bounds a table, mostEntries the ips of a ReservedIP, mostOfMachine those for a machine, and mostProblems
	// the problems that an error names.
	mostRows      = 100_000
	mostEntries   = 4096
	mostOfMachine = 16
	mostProblems  = 10
)

// tableColumns are the columns of export reservations, in order.
func tableColumns() []string {
	return []string{"reservation", "ips", "network", "namespace", "pod", "statefulset", "virtualmachine", "mac"}
}

// otherColumns are those of NetBox and Infoblox that have no meaning for a reservation.
func otherColumns() []string {
	return strings.Fields(`vrf tenant status role dns_name description comments tags id assigned_object nat_inside parent interface is_primary name comment mac_address
		assigned device/vm nat_(inside) nat_(outside) tenant_group created last_updated url`)
}

func tableOf(all []v1alpha1.ReservedIP) [][]string {
	rows := [][]string{tableColumns()}
	for _, r := range all {
		whom := v1alpha1.ReservedFor{}
		if r.Spec.For != nil {
			whom = *r.Spec.For
		}
		for _, ip := range r.Spec.IPs {
			rows = append(rows, []string{r.Name, ip, r.Spec.Network, whom.Namespace, whom.Pod, whom.StatefulSet, whom.VirtualMachine, whom.MAC})
		}
	}
	return rows
}

// table is a table that is read, with its problems.
type table struct {
	all      []v1alpha1.ReservedIP
	at       map[string]int // of a reservation in all
	unnamed  []tableRow
	spans    map[string][]tableRow // rows by network
	problems []error
}

type tableRow struct {
	line  int
	entry string
	set   poolset.Set
}

func (t *table) wrong(line int, column, format string, args ...any) {
	t.problems = append(t.problems, fmt.Errorf("line %d, column %s: "+format, append([]any{line, column}, args...)...))
}

// readTable reads the reservations of a table with commas, semicolons or tabs. Rows without a reservation are for
// nobody, in reservations of the given name. A table of Infoblox has the kind of each row in its first column, and a
// line with the columns of each kind. The error names the line and column of each problem.
func readTable(data []byte, name string) ([]v1alpha1.ReservedIP, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return nil, errors.New("line 1: the table is UTF-16: save it as UTF-8")
	}
	first, _, _ := bytes.Cut(bytes.ToLower(data), []byte("\n"))
	isInfoblox := bytes.HasPrefix(first, []byte("header-"))
	reader := csv.NewReader(bytes.NewReader(data))
	reader.FieldsPerRecord = -1
	reader.Comma = slices.MaxFunc([]rune{'\t', ';', ','}, func(a, b rune) int {
		return cmp.Compare(strings.Count(string(first), string(a)), strings.Count(string(first), string(b)))
	})
	t, columns, rows := table{at: map[string]int{}, spans: map[string][]tableRow{}}, []string(nil), 0
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read the table: %w", err)
		}
		line, _ := reader.FieldPos(0)
		switch {
		case columns == nil, isInfoblox && strings.HasPrefix(strings.ToLower(record[0]), "header-"):
			if columns, err = readColumns(record, isInfoblox); err != nil {
				return nil, fmt.Errorf("line %d, %w", line, err)
			}
		case len(record) != len(columns):
			return nil, fmt.Errorf("line %d: it has %d fields, expected %d", line, len(record), len(columns))
		case rows == mostRows:
			return nil, fmt.Errorf("line %d: the table has more than %d rows: split it", line, mostRows)
		default:
			rows++
			t.add(line, columns, record)
		}
	}
	if rows == 0 {
		return nil, errors.New("the table has no row")
	}
	t.findDoubles()
	if n := len(t.problems); n > mostProblems {
		t.problems = append(t.problems[:mostProblems], fmt.Errorf("and %d more", n-mostProblems))
	}
	var set poolset.Set
	if len(t.problems) == 0 {
		entries := make([]string, len(t.unnamed))
		for i, r := range t.unnamed {
			entries[i] = r.entry
		}
		set, _ = poolset.Parse(entries)
	}
	for n, entries := range slices.Collect(slices.Chunk(set.Entries(), mostEntries)) {
		r := v1alpha1.ReservedIP{Spec: v1alpha1.ReservedIPSpec{IPs: entries}}
		if r.Name = name; n > 0 {
			r.Name = fmt.Sprintf("%s-%d", name, n+1)
		}
		if _, ok := t.at[r.Name]; ok {
			t.wrong(t.unnamed[0].line, "reservation", "it is empty, and %s, the name of rows without one, is in another line: use --name", r.Name)
		}
		t.all = append(t.all, r)
	}
	return t.all, errors.Join(t.problems...)
}

// readColumns returns the names of the columns in lower case, without the stars of Infoblox and the spaces of
// NetBox's labels. A name is empty for a
// column that does not count.
func readColumns(record []string, isInfoblox bool) ([]string, error) {
	columns, seen, addresses := make([]string, len(record)), map[string]bool{}, 0
	for i, name := range record {
		name = strings.ReplaceAll(strings.TrimRight(strings.ToLower(strings.TrimSpace(name)), "*"), " ", "_")
		isAddress := name == "address" || name == "ip_address" || name == "ips"
		switch {
		case seen[name]:
			return nil, fmt.Errorf("column %d: %s is there twice", i+1, name)
		case isAddress || !isInfoblox && slices.Contains(tableColumns(), name):
			columns[i] = name
		case !isInfoblox && !slices.Contains(otherColumns(), name) && !strings.HasPrefix(name, "cf_"):
			return nil, fmt.Errorf("column %d: %.64q is no column of a reservation: leave it out", i+1, name)
		}
		if seen[name] = true; isAddress {
			addresses++
		}
	}
	if addresses != 1 {
		return nil, fmt.Errorf("%d columns are address (NetBox), ip_address (Infoblox) or ips (export reservations): it needs one", addresses)
	}
	return columns, nil
}

// add adds a row.
func (t *table) add(line int, columns, record []string) {
	r, address := map[string]string{}, ""
	for i, column := range columns {
		r[column] = strings.TrimSpace(record[i])
		if column == "address" || column == "ip_address" || column == "ips" {
			address = column
		}
	}
	entry := r[address]
	if address != "ips" {
		entry, _, _ = strings.Cut(entry, "/") // the prefix length is that of the subnet
	}
	set, err := poolset.Parse([]string{entry})
	if err != nil || set.Len() == 0 || address != "ips" && set.Len() != 1 {
		t.wrong(line, address, "%.64q is no address", r[address])
		return
	}
	row := tableRow{line, entry, set}
	t.spans[r["network"]] = append(t.spans[r["network"]], row)
	spec := v1alpha1.ReservedIPSpec{Network: r["network"]}
	whom := v1alpha1.ReservedFor{Namespace: r["namespace"], Pod: r["pod"], StatefulSet: r["statefulset"], VirtualMachine: r["virtualmachine"]}
	if r["mac"] != "" {
		mac, err := net.ParseMAC(r["mac"])
		switch {
		case err != nil || len(mac) != 6 || mac[0]&1 != 0:
			t.wrong(line, "mac", "%.64q is no MAC of a host, such as 02:00:00:00:00:01", r["mac"])
			return
		case whom != (v1alpha1.ReservedFor{}):
			t.wrong(line, "mac", "a machine is no pod: leave the mac or the other columns of the subject empty")
			return
		case set.Len() != 1:
			t.wrong(line, address, "%.64q is for a machine, which has single addresses", entry)
			return
		}
		whom.MAC = mac.String()
	}
	if whom != (v1alpha1.ReservedFor{}) {
		spec.For = &whom
	}
	name := r["reservation"]
	if name == "" {
		if spec.For != nil || spec.Network != "" {
			t.wrong(line, "reservation", "it is empty, but the address is for somebody: name the ReservedIP")
		}
		t.unnamed = append(t.unnamed, row)
		return
	}
	i, ok := t.at[name]
	if !ok {
		i, t.at[name] = len(t.all), len(t.all)
		t.all = append(t.all, v1alpha1.ReservedIP{Spec: spec})
		t.all[i].Name = name
	}
	is := &t.all[i].Spec
	if is.Network != spec.Network || (is.For == nil) != (spec.For == nil) || is.For != nil && *is.For != whom {
		t.wrong(line, "reservation", "%s is for somebody else in an earlier line", name)
	}
	is.IPs = append(is.IPs, entry)
	switch {
	case whom.MAC != "" && len(is.IPs) == mostOfMachine+1:
		t.wrong(line, "reservation", "%s has more than %d addresses of a machine: use two", name, mostOfMachine)
	case len(is.IPs) == mostEntries+1:
		t.wrong(line, "reservation", "%s has more than %d entries: write ranges, or use two", name, mostEntries)
	}
}

// findDoubles reports each row that has an address of another row of its network.
func (t *table) findDoubles() {
	for _, network := range slices.Sorted(maps.Keys(t.spans)) {
		rows := t.spans[network]
		slices.SortStableFunc(rows, func(a, b tableRow) int { return a.set.At(0).Compare(b.set.At(0)) })
		far := 0
		for i := 1; i < len(rows); i++ {
			a, b := rows[far], rows[i]
			if a.set.Overlaps(b.set) {
				t.wrong(max(a.line, b.line), "address", "%s is in line %d as well", b.entry, min(a.line, b.line))
			}
			if ends := a.set.Ends(); ends[1].Less(b.set.Ends()[1]) {
				far = i
			}
		}
	}
}
