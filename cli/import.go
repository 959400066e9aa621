// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/internal/poolset"
)

// mostShown is the number of ranges that a difference shows.
const mostShown = 10

// imported is the answer of import: a list for Git, and the differences for people.
type imported struct {
	metav1.TypeMeta `json:",inline"`
	Items           []manifest `json:"items"`
	changes         []tableChange
	written         bool
}

// manifest is a ReservedIP without a status.
type manifest struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec v1alpha1.ReservedIPSpec `json:"spec"`
}

// tableChange is the difference between a reservation of a table and the cluster.
type tableChange struct {
	is             string // new, changed or same
	added, removed poolset.Set
	lost           *v1alpha1.ReservedFor // whom the addresses are for no longer
	twice          string                // the title of another reservation that has one of the addresses
	object         *v1alpha1.ReservedIP
}

// exportReservations writes a row for each entry of each reservation, as import reads it.
func (s *session) exportReservations() *cobra.Command {
	return &cobra.Command{
		Use: "reservations", Short: "Write the ReservedIPs as CSV, one row for each entry of ips, or with -o json", Args: cobra.NoArgs,
		RunE: answers(s, func(ctx context.Context, c *cluster.Cluster, _ []string) (v1alpha1.ReservedIPList, error) {
			var all v1alpha1.ReservedIPList
			if err := c.List(ctx, &all); err != nil {
				return all, fmt.Errorf("list reservations: %w", err)
			}
			return all, nil
		}, func(w paper, all v1alpha1.ReservedIPList) { writeRows(w, tableOf(all.Items)) }),
	}
}

func (s *session) importTable() *cobra.Command {
	name, apply := "", false
	c := &cobra.Command{
		Use: "import FILE.csv", Short: "Compare a table of reserved addresses with the ReservedIPs, and write them with --apply", Args: cobra.ExactArgs(1),
		Long: `Read reservations from CSV: of "export reservations", of NetBox (address), or of Infoblox (ip_address).

It shows the differences and writes nothing, prints the ReservedIPs for Git with -o yaml, and writes them with
--apply. Reservations that the table does not name stay as they are. FILE - is the standard input.`,
		Example: "  kubectl fenceline import netbox.csv\n  kubectl fenceline import netbox.csv -o yaml > reservations.yaml",
		RunE: answers(s, func(ctx context.Context, c *cluster.Cluster, args []string) (*imported, error) {
			data, err := s.readFile(args[0])
			if err != nil {
				return nil, fmt.Errorf("read the table: %w", err)
			}
			if name == "" {
				name = strings.ToLower(strings.TrimSuffix(filepath.Base(args[0]), filepath.Ext(args[0])))
			}
			wanted, err := readTable(data, name)
			if err != nil {
				return nil, err
			}
			var there v1alpha1.ReservedIPList
			if err := c.List(ctx, &there); err != nil {
				return nil, fmt.Errorf("list reservations: %w", err)
			}
			a := &imported{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, changes: changesOf(there.Items, wanted), written: apply}
			for i := range wanted {
				m := manifest{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "ReservedIP"}, Spec: wanted[i].Spec}
				m.Metadata.Name = wanted[i].Name
				a.Items = append(a.Items, m)
			}
			if apply {
				err = a.apply(ctx, c)
			}
			return a, err
		}, func(w paper, a *imported) { a.write(w) }),
	}
	c.Flags().StringVar(&name, "name", "", "name of the ReservedIP for rows without one; that of the file by default")
	c.Flags().BoolVar(&apply, "apply", false, "write the reservations")
	return c
}

// readFile reads a file, or the standard input.
func (s *session) readFile(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(s.In)
	}
	return os.ReadFile(file)
}

func changesOf(there, wanted []v1alpha1.ReservedIP) (changes []tableChange) {
	byName := map[string]*v1alpha1.ReservedIP{}
	for i := range there {
		byName[there[i].Name] = &there[i]
	}
	after := slices.Clone(wanted)
	for i := range wanted {
		c, was := tableChange{is: "new", object: wanted[i].DeepCopy()}, poolset.Set{}
		if old := byName[wanted[i].Name]; old != nil {
			was, _ = poolset.ReservedBy(old)
			wanted[i].Spec.Virtual, wanted[i].Spec.IPVersion = old.Spec.Virtual, old.Spec.IPVersion // no column has them
			if c.is = "changed"; equality.Semantic.DeepEqual(old.Spec, wanted[i].Spec) {
				c.is = "same"
			}
			if whom := old.Spec.For; whom != nil && !equality.Semantic.DeepEqual(whom, wanted[i].Spec.For) {
				c.lost = whom
			}
			old.DeepCopyInto(c.object)
			c.object.Spec = wanted[i].Spec
			delete(byName, old.Name)
		}
		is, _ := poolset.ReservedBy(&wanted[i])
		c.added, c.removed = is.Minus(was), was.Minus(is)
		changes = append(changes, c)
	}
	for _, rest := range byName {
		after = append(after, *rest)
	}
	for i, other := range poolset.Contested(after) {
		if i < len(changes) {
			changes[i].twice = other
		}
	}
	return changes
}

// apply writes the reservations, if the API server would accept all of them. It may be repeated.
func (a *imported) apply(ctx context.Context, c *cluster.Cluster) error {
	for _, try := range [][]string{{metav1.DryRunAll}, nil} {
		var errs []error
		for _, change := range a.changes {
			var err error
			switch o := change.object.DeepCopy(); change.is {
			case "new":
				err = c.Create(ctx, o, &client.CreateOptions{DryRun: try})
			case "changed":
				err = c.Update(ctx, o, &client.UpdateOptions{DryRun: try})
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("write ReservedIP %s: %w", change.object.Name, err))
			}
		}
		if err := errors.Join(errs...); err != nil && try != nil {
			return fmt.Errorf("nothing is written: %w", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (a *imported) write(w paper) {
	same := 0
	for _, c := range a.changes {
		if c.is == "same" {
			same++
			continue
		}
		text := c.is
		if whom := c.object.Spec.For; whom != nil {
			text += ", for " + whom.String()
		}
		if c.lost != nil {
			text += ", no longer for " + c.lost.String()
		}
		for i, set := range []poolset.Set{c.added, c.removed} {
			entries, sign := set.Entries(), " "+"+-"[i:i+1]
			text += strings.Join(append([]string{""}, entries[:min(len(entries), mostShown)]...), sign)
			if n := len(entries) - mostShown; n > 0 {
				text += fmt.Sprintf(" and %d more", n)
			}
		}
		if c.twice != "" {
			text += "; " + c.twice + " has one of its addresses too: nobody gets it"
		}
		w.about("1", c.object.Name, text)
	}
	fmt.Fprintf(w, "%d of %d reservations are the same.\n", same, len(a.changes))
	if !a.written && same < len(a.changes) {
		fmt.Fprintln(w, "Nothing is written: use --apply, or -o yaml.")
	}
}
