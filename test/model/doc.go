// SPDX-License-Identifier: Apache-2.0

// Package model checks a formal model of the protocol: lease, claim, ack and
// token. The model is the Promela in this directory; docs/model.md explains it.
// The tests have the tag model and need Debian's spin and gcc.
package model
