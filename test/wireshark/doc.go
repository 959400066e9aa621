// SPDX-License-Identifier: Apache-2.0

// Package wireshark has Wireshark judge frames that tests keep in files of the format pcap.
package wireshark
