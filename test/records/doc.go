// SPDX-License-Identifier: Apache-2.0

// Package records tests what the API server accepts: the validation of pools
// and leases, and the admission policies, as the chart installs them.
package records
