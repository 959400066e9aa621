// SPDX-License-Identifier: Apache-2.0

// Package docs tests that the documents of the project are true where a program
// can check it: paths, links, names of tests, and the length of lines.
package docs
