// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"fmt"
	"testing"

	"github.com/kubetenant/kubetenant/authn/keystone"
)

// BenchmarkPlan measures how long it takes to plan 1,000 projects with 10,000 assignments if
// nothing has changed.
func BenchmarkPlan(b *testing.B) {
	c := newCluster(b)
	c.contents.Roles, c.contents.Assignments, c.contents.Projects = nil, nil, nil
	for i := range 10 {
		name := fmt.Sprint("role-", i)
		c.contents.Roles = append(c.contents.Roles, keystone.Role{ID: name, Name: name})
		c.settings.Roles[name] = "view"
	}
	for i := range 1000 {
		id := fmt.Sprintf("%08x%024x", i, i)
		c.contents.Projects = append(c.contents.Projects, project(id, "Web"))
		for _, role := range c.contents.Roles {
			c.contents.Assignments = append(c.contents.Assignments, keystone.Assignment{RoleID: role.ID, ProjectID: id})
		}
	}
	c.synced()
	state := c.state()
	for b.Loop() {
		plans := Plans(&c.settings, &c.contents, state, func(string) bool { return false }, c.now)
		if len(plans) != 1 || len(plans[0].Changes) > 0 {
			b.Fatal("the plans are not empty")
		}
	}
}
