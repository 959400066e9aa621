// SPDX-License-Identifier: Apache-2.0

// Package guards keeps the guard programs of this node: it numbers their slots, attaches and pins
// them, installs the leases that they enforce, kills slots, and sweeps the remains of lost devices.
package guards
