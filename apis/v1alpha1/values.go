// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"time"
)

// The types of this file carry the rules of a value that several fields share. All but Duration are
// aliases: Go code uses a plain string, and the rules stand in the CRD for each field.

// Address is an IP address in text form.
//
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self)",messageExpression="self + ' is not an IP address'"
type Address = string

// CIDR is a subnet in CIDR notation without host bits.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",messageExpression="self + ' is not a CIDR'"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",messageExpression="self + ' has host bits set'"
type CIDR = string

// Subnet is a CIDR whose addresses a pod can have. The rules name the ranges that the standards reserve
// or give to another use (RFC 6890, RFC 4291 section 2.5). An IPv4-mapped CIDR is none.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",messageExpression="self + ' is not a CIDR'"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",messageExpression="self + ' has host bits set'"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || !cidr('0.0.0.0/8').containsCIDR(self) && !cidr(self).containsCIDR('0.0.0.0/8')",messageExpression="self + ' has addresses that no pod can have: 0.0.0.0/8 (this network)'"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || !cidr('127.0.0.0/8').containsCIDR(self) && !cidr(self).containsCIDR('127.0.0.0/8')",messageExpression="self + ' has addresses that no pod can have: 127.0.0.0/8 (loopback)'"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || !cidr('169.254.0.0/16').containsCIDR(self) && !cidr(self).containsCIDR('169.254.0.0/16')",messageExpression="self + ' has addresses that no pod can have: 169.254.0.0/16 (link-local)'"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || !cidr('224.0.0.0/4').containsCIDR(self) && !cidr(self).containsCIDR('224.0.0.0/4')",messageExpression="self + ' has addresses that no pod can have: 224.0.0.0/4 (multicast)'"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || !cidr('240.0.0.0/4').containsCIDR(self) && !cidr(self).containsCIDR('240.0.0.0/4')",messageExpression="self + ' has addresses that no pod can have: 240.0.0.0/4 (class E)'"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || !cidr('::/127').containsCIDR(self) && !cidr(self).containsCIDR('::/127')",messageExpression="self + ' has addresses that no pod can have: ::/127 (unspecified and loopback)'"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || !cidr('fe80::/10').containsCIDR(self) && !cidr(self).containsCIDR('fe80::/10')",messageExpression="self + ' has addresses that no pod can have: fe80::/10 (link-local)'"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || !cidr('ff00::/8').containsCIDR(self) && !cidr(self).containsCIDR('ff00::/8')",messageExpression="self + ' has addresses that no pod can have: ff00::/8 (multicast)'"
type Subnet = string

// IPRange is an entry of a list of addresses: a range "first-last", an address or a CIDR. The
// controller checks the order of a range.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=95
// +kubebuilder:validation:XValidation:rule="isIP(self) || isCIDR(self) || (self.split('-').size() == 2 && isIP(self.split('-')[0]) && isIP(self.split('-')[1]))",messageExpression="self + ' is neither an address nor a CIDR nor a range first-last'"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",messageExpression="self + ' has host bits set'"
// +kubebuilder:validation:XValidation:rule="self.matches('^([^:]*|[^-]*:[^-]*(-.*:.*)?)$')",messageExpression="'the range ' + self + ' mixes IPv4 and IPv6'"
type IPRange = string

// InterfaceName is the name of a network interface as the kernel accepts it: at most 15 characters, or
// 127 if it is an alternative name (IFLA_ALT_IFNAME).
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=127
// +kubebuilder:validation:XValidation:rule="self.matches('^[^/:[:space:]]+$')",messageExpression="self + ' is not the name of an interface'"
type InterfaceName = string

// MAC is a MAC address in lower case. A pattern costs the API server less than a rule, and a lease
// is written often.
//
// +kubebuilder:validation:MaxLength=17
// +kubebuilder:validation:Pattern=`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`
type MAC = string

// Duration is a time.Duration that stands in JSON as Go writes it, such as "1m30s".
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$')",messageExpression="self + ' is not a duration such as 50ms, 5s or 1h30m'"
type Duration struct{ time.Duration }

// MarshalJSON writes the form of time.Duration.String.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads the form of time.ParseDuration.
func (d *Duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("read duration: %w", err)
	}
	d.Duration = parsed
	return nil
}
