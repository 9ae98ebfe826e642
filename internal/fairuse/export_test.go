// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package fairuse

// Retained returns the number of tenants in the meter.
func (m *Meter) Retained() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.tenants)
}
