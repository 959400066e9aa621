// SPDX-License-Identifier: Apache-2.0

package lease

import "github.com/fenceline/fenceline/apis/v1alpha1"

// KeepsName reports whether the holder's identity outlives the pod, so that its
// addresses are kept for the pod of the same name.
func KeepsName(holder *v1alpha1.Holder) bool { return holder.OwnerKind == "StatefulSet" }
