// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestTablesOfAddresses(t *testing.T) {
	const own = "reservation,ips,network,namespace,pod,statefulset,virtualmachine\n"
	long := own
	for i := range mostEntries + 1 {
		long += fmt.Sprintf("a,10.0.%d.%d,,shop,web-0,,\n", i/256, i%256)
	}
	for _, row := range []struct{ name, table, want string }{
		{"NetBox", "address,vrf,tenant,status,role,dns_name,description,cf_rack\n10.0.0.1/24,,,active,,a.example.com,\"x, y\",1\n10.0.0.2/24,,,reserved,,,,\nfd00::1/64,,,,,,,\n", "file=10.0.0.1-10.0.0.2,fd00::1"},
		{"NetBox's labels", "IP Address,VRF,Status,Role,Tenant,Assigned,DNS Name,Description\n10.0.0.1/24,,Active,,,False,,\n", "file=10.0.0.1"},
		{"Infoblox", "header-fixedaddress,ip_address*,_new_ip_address,mac_address,name,comment\nfixedaddress,10.0.0.1,,02:00:00:00:00:01,a,\nheader-hostaddress,address*,parent*,mac_address\nhostaddress,10.0.0.9,a.example.com,\n", "file=10.0.0.1,10.0.0.9"},
		{"its own, in the order of ordinals", own + "db,10.0.0.9,,shop,,db,\ndb,10.0.0.1-10.0.0.3,,shop,,db,\nrouters,fd00::/64,,,,,\n", "db=10.0.0.9,10.0.0.1-10.0.0.3 for StatefulSet shop/db; routers=fd00::/64"},
		{"machines by their MACs", "reservation,ips,mac,network\na,10.0.0.1,02-00-00-00-00-0A,lab\na,10.0.0.2,02:00:00:00:00:0a,lab\n", "a=10.0.0.1,10.0.0.2 for the machine with MAC 02:00:00:00:00:0a on lab"},
		{"a MAC that is none", "reservation,ips,mac\na,10.0.0.1,02:00\n", "line 2, column mac: \"02:00\" is no MAC"},
		{"a MAC of many", "reservation,ips,mac\na,10.0.0.1,01:00:5e:00:00:01\n", "line 2, column mac: \"01:00:5e:00:00:01\" is no MAC of a host"},
		{"a machine in a namespace", "reservation,ips,mac,namespace\na,10.0.0.1,02:00:00:00:00:0a,shop\n", "line 2, column mac: a machine is no pod"},
		{"a range of a machine", "reservation,ips,mac\na,10.0.0.0/30,02:00:00:00:00:0a\n", "line 2, column ips: \"10.0.0.0/30\" is for a machine"},
		{"semicolons, a byte order mark, CRLF", "\ufeffAddress;Description\r\n10.0.0.1;a, b\r\n", "file=10.0.0.1"},
		{"tabs", "address\tdescription\n10.0.0.1\ta\n", "file=10.0.0.1"},
		{"UTF-16", "\xff\xfea\x00", "line 1: the table is UTF-16"},
		{"nothing", "address\n", "the table has no row"},
		{"a foreign column", "address,Rack\n10.0.0.1,2\n", `line 1, column 2: "rack" is no column of a reservation`},
		{"a column twice", "address,status,status\n10.0.0.1,,\n", "line 1, column 3: status is there twice"},
		{"two columns of addresses", "address,ips\n10.0.0.1,10.0.0.2\n", "2 columns are address"},
		{"no addresses", "status\nactive\n", "line 1, 0 columns are address"},
		{"a short row", "address,status\n10.0.0.1\n", "line 2: it has 1 fields, expected 2"},
		{"an open quote", "address,status\n10.0.0.1,\"a\n", "parse error on line 2"},
		{"wrong addresses", "address\n10.0.0.1\n10.0.0.300/24\n10.0.0.1-10.0.0.3\n", "line 3, column address: \"10.0.0.300/24\" is no address\nline 4, column address: \"10.0.0.1-10.0.0.3\" is no address"},
		{"an address twice", "address\n10.0.0.7/24\n10.0.0.2\n10.0.0.7\n", "line 4, column address: 10.0.0.7 is in line 2 as well"},
		{"an address in a range", own + "a,10.0.0.0/24,,,,,\nb,10.0.0.1,,,,,\nc,10.0.0.9,,,,,\n", "line 3, column address: 10.0.0.1 is in line 2 as well\nline 4, column address: 10.0.0.9 is in line 2 as well"},
		{"one address on two networks", own + "a,10.0.0.1,x,shop,web-0,,\nb,10.0.0.1,y,shop,web-0,,\n", "a=10.0.0.1 for pod shop/web-0 on x; b=10.0.0.1 for pod shop/web-0 on y"},
		{"somebody without a reservation", own + ",10.0.0.1,,shop,web-0,,\n", "line 2, column reservation: it is empty"},
		{"a name in the table that is that of rows without one", own + "file,10.0.0.1,,shop,web-0,,\n,10.0.0.2,,,,,\n", "line 3, column reservation: it is empty, and file, the name of rows without one, is in another line"},
		{"two subjects", own + "a,10.0.0.1,,shop,web-0,,\na,10.0.0.2,,shop,web-1,,\n", "line 3, column reservation: a is for somebody else"},
		{"too many entries", long, "line 4098, column reservation: a has more than 4096 entries"},
	} {
		all, err := readTable([]byte(row.table), "file")
		got := ""
		for _, r := range all {
			got += r.Name + "=" + strings.Join(r.Spec.IPs, ",")
			if r.Spec.For != nil {
				got += " for " + r.Spec.For.String()
			}
			if r.Spec.Network != "" {
				got += " on " + r.Spec.Network
			}
			got += "; "
		}
		if err != nil {
			check.Says(t, err.Error(), row.want)
			continue
		}
		check.Equal(t, strings.TrimSuffix(got, "; "), row.want, "%s: the reservations are", row.name)
		var out bytes.Buffer
		writeRows(paper{printable{&out}, 0, nil}, tableOf(all))
		again, err := readTable(out.Bytes(), "other")
		check.That(t, err == nil && fmt.Sprint(again) == fmt.Sprint(all), "%s: again: %v, %v", row.name, again, err)
	}
}

func TestALongTable(t *testing.T) {
	table := strings.Builder{}
	table.WriteString("address\n")
	for i := range mostRows {
		fmt.Fprintf(&table, "10.%d.%d.%d\n", i>>15, i>>7&255, i&127*2)
	}
	start := time.Now()
	all, err := readTable([]byte(table.String()), "file")
	check.That(t, err == nil && len(all) == 25 && all[24].Name == "file-25", "%d reservations, %v", len(all), err)
	t.Logf("%d rows in %s", mostRows, time.Since(start))
	_, err = readTable([]byte(table.String()+"10.200.0.1\n"), "file")
	check.That(t, err != nil && strings.Contains(err.Error(), "line 100002: the table has more than 100000 rows"), "%v", err)
}

func TestTheDifferencesOfATable(t *testing.T) {
	there := check.Value(readTable([]byte("reservation,ips,namespace,pod\na,10.0.0.1,,\nb,10.0.0.2,,\nc,10.0.0.9,shop,web-0\nd,10.0.0.20,,\nf,10.0.0.30,shop,web-0\ng,10.0.0.31,shop,web-0\n"), ""))(t)
	wanted := check.Value(readTable([]byte("reservation,ips,namespace,pod\na,10.0.0.1,,\nb,10.0.0.3-10.0.0.4,,\ne,10.0.0.9,shop,web-1\nf,10.0.0.30,,\ng,10.0.0.31,shop,web-1\n"), ""))(t)
	there[0].Spec.Virtual = &v1alpha1.ReservedVirtual{Namespace: "shop"}
	var out bytes.Buffer
	(&imported{changes: changesOf(there, wanted)}).write(paper{printable{&out}, 0, func(_, text string) string { return text }})
	check.Equal(t, out.String(), "b: changed +10.0.0.3-10.0.0.4 -10.0.0.2\n"+
		"e: new, for pod shop/web-1 +10.0.0.9; ReservedIP c has one of its addresses too: nobody gets it\n"+
		"f: changed, no longer for pod shop/web-0\ng: changed, for pod shop/web-1, no longer for pod shop/web-0\n"+
		"1 of 5 reservations are the same.\nNothing is written: use --apply, or -o yaml.\n", "it says")
}
