// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package state

// NewForLabels returns a State with webhooks and the version of the webhooks during the backfill.
func NewForLabels(w *Webhooks, swept string) *State {
	return &State{webhooks: w, backfill: &backfillStatus{webhooks: ParseVersion(swept)}}
}
