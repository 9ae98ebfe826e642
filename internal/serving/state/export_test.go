// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package state

// NewForLabels returns what knows webhooks, and says with which the controller swept.
func NewForLabels(w *Webhooks, swept string) *State {
	return &State{webhooks: w, swept: &sweptFile{with: ParseVersion(swept)}}
}
