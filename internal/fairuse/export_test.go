package fairuse

// Tenants returns the number of tenants that the meter retains.
func (m *Meter) Tenants() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.used)
}
