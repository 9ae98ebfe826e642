// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
	"github.com/kubetenant/kubetenant/internal/reload"
)

// ErrIncomplete reports that Keystone did not return complete and consistent lists of its
// domains, projects, roles and role assignments. The error names the list and the problem. It
// contains no names from Keystone, but may contain IDs.
var ErrIncomplete = errors.New("incomplete lists from Keystone")

// maxNameBytes is the maximum size of an ID or a name. Keystone allows 255 characters of at most 4
// bytes each.
const maxNameBytes = 1024

// Contents has the entries that [Directory.Read] returns.
type Contents struct {
	Domains     []Domain
	Projects    []Project
	Roles       []Role
	Assignments []Assignment
	Implied     []Implication
}

// Domain is a Keystone domain.
type Domain struct {
	ID, Name string
	Enabled  bool
}

// Project is a Keystone project that does not act as a domain. For a project at the top of its
// domain, ParentID is the ID of the domain or empty.
type Project struct {
	ID, Name, DomainID, ParentID string
	Enabled                      bool
}

// Role is a Keystone role. DomainID is empty for a global role.
type Role struct{ ID, Name, DomainID string }

// Assignment is a role that a user or a group has on a project or a domain. Exactly one of
// ProjectID and DomainID is set. RoleID may be the ID of a role that is not in [Contents].
type Assignment struct {
	RoleID, ProjectID, DomainID string
	// Inherited reports whether the role applies only to the projects below the project or domain, and
	// not to the project or domain itself.
	Inherited bool
}

// Implication is a Keystone role inference. A user with the role also has the implied role.
type Implication struct{ RoleID, ImpliedID string }

// Directory reads the projects and roles of one Keystone. It is safe for concurrent use.
type Directory struct {
	service func() *service
	limiter flowcontrol.RateLimiter
	reads   outbound.Gate // allows one read at a time, because a read uses much memory
}

// OpenDirectory returns the directory of the Keystone at authURL. Like [Open], it takes the
// service user from a cloud in a clouds.yaml, and changes of the file take effect while run
// runs. The service user needs the role reader with system scope. No request is sent before the
// first Read.
func OpenDirectory(
	path, cloud, authURL string, report reload.Report,
) (d *Directory, run func(ctx context.Context), err error) {
	parse := func(data []byte) (*service, error) {
		return newBoundedService(data, cloud, authURL, bounds{maxPageBytes, pageTimeout})
	}
	file, err := reload.Open(path, parse, report)
	if err != nil {
		return nil, nil, err
	}
	d = &Directory{
		service: func() *service { return *file.Load() },
		limiter: flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, 1),
		reads:   make(outbound.Gate, 1),
	}
	return d, file.Run, nil
}

// Read returns the contents of Keystone. It fails with [ErrIncomplete] or [ErrUnavailable].
// Before it returns ErrIncomplete, it reads all lists again, because a list may change between
// pages.
func (d *Directory) Read(ctx context.Context) (*Contents, error) {
	if d.reads.Enter(ctx) != nil {
		return nil, fmt.Errorf("%w: another read is in progress", ErrUnavailable)
	}
	defer d.reads.Leave()
	contents, err := d.read(ctx)
	if errors.Is(err, ErrIncomplete) {
		contents, err = d.read(ctx)
	}
	return contents, err
}

// read reads each list once. It reads assignments before projects. An assignment whose project
// is not in the list of projects therefore belongs to a project that was deleted in between.
func (d *Directory) read(ctx context.Context) (*Contents, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	p := &pass{service: d.service(), limiter: d.limiter}
	if err := p.logIn(ctx); err != nil {
		return nil, err
	}
	c := newCollection()
	if err := readList(ctx, p, "domains", pageQuery, c.addDomain); err != nil {
		return nil, err
	}
	if err := readList(ctx, p, "roles", pageQuery, c.addRole); err != nil {
		return nil, err
	}
	if err := readList(ctx, p, "role_inferences", "", c.addInference); err != nil {
		return nil, err
	}
	if p.entries += len(c.Implied); p.entries > maxEntries {
		return nil, incomplete("role_inferences", "Keystone has more than %d entries", maxEntries)
	}
	if err := readList(ctx, p, "role_assignments", pageQuery, c.addAssignment); err != nil {
		return nil, err
	}
	if err := readList(ctx, p, "projects", pageQuery, c.addProject); err != nil {
		return nil, err
	}
	return c.finish()
}

// collection validates the entries of Keystone's lists and collects them without duplicates.
type collection struct {
	Contents
	domains     map[string]Domain
	projects    map[string]Project
	roles       map[string]Role
	assignments map[Assignment]bool
	implied     map[Implication]bool
	scopes      int // the number of entries in the list of assignments, including those that are not collected
}

func newCollection() *collection {
	return &collection{
		domains:     map[string]Domain{},
		projects:    map[string]Project{},
		roles:       map[string]Role{},
		assignments: map[Assignment]bool{},
		implied:     map[Implication]bool{},
	}
}

type reference struct {
	ID string `json:"id"`
}

type domainEntry struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Enabled *bool  `json:"enabled"`
}

func (c *collection) addDomain(e *domainEntry) error {
	if e.Enabled == nil {
		return fmt.Errorf("%.64q has no enabled", e.ID)
	}
	return addNamed(c.domains, &c.Domains, e.ID, e.Name, Domain{e.ID, e.Name, *e.Enabled})
}

type roleEntry struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	DomainID string `json:"domain_id"`
}

func (c *collection) addRole(e *roleEntry) error {
	return addNamed(c.roles, &c.Roles, e.ID, e.Name, Role(*e))
}

type inferenceEntry struct {
	Prior   reference   `json:"prior_role"`
	Implies []reference `json:"implies"`
}

func (c *collection) addInference(e *inferenceEntry) error {
	if e.Prior.ID == "" || e.Implies == nil {
		return errors.New("an entry has no prior_role.id or no implies")
	}
	for _, implied := range e.Implies {
		if implied.ID == "" {
			return fmt.Errorf("an implied role of %.64q has no id", e.Prior.ID)
		}
		i := Implication{e.Prior.ID, implied.ID}
		if !c.implied[i] {
			c.implied[i] = true
			c.Implied = append(c.Implied, i)
		}
	}
	return nil
}

type assignmentEntry struct {
	Role  reference `json:"role"`
	Scope struct {
		Project   *reference `json:"project"`
		Domain    *reference `json:"domain"`
		System    *struct{}  `json:"system"`
		Inherited string     `json:"OS-INHERIT:inherited_to"`
	} `json:"scope"`
}

func (c *collection) addAssignment(e *assignmentEntry) error {
	c.scopes++
	a := Assignment{RoleID: e.Role.ID, Inherited: e.Scope.Inherited != ""}
	targets := 0
	for target, into := range map[*reference]*string{e.Scope.Project: &a.ProjectID, e.Scope.Domain: &a.DomainID} {
		if target == nil {
			continue
		}
		if target.ID == "" {
			return errors.New("the scope of an entry has no id")
		}
		*into = target.ID
		targets++
	}
	if e.Scope.System != nil {
		targets++
	}
	switch {
	case e.Role.ID == "":
		return errors.New("an entry has no role.id")
	case targets != 1:
		return fmt.Errorf("an entry has %d scopes instead of one", targets)
	case e.Scope.Inherited != "" && e.Scope.Inherited != "projects":
		return errors.New("an entry has an unknown inheritance")
	case e.Scope.System == nil && !c.assignments[a]:
		c.assignments[a] = true
		c.Assignments = append(c.Assignments, a)
	}
	return nil
}

type projectEntry struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	DomainID string `json:"domain_id"`
	ParentID string `json:"parent_id"`
	Enabled  *bool  `json:"enabled"`
	IsDomain bool   `json:"is_domain"`
}

func (c *collection) addProject(e *projectEntry) error {
	if e.IsDomain {
		return nil
	}
	if e.Enabled == nil {
		return fmt.Errorf("%.64q has no enabled", e.ID)
	}
	return addNamed(c.projects, &c.Projects, e.ID, e.Name, Project{
		ID:       e.ID,
		Name:     e.Name,
		DomainID: e.DomainID,
		ParentID: e.ParentID,
		Enabled:  *e.Enabled,
	})
}

// addNamed adds a value unless the same value was added before. It returns an error if the ID or
// the name is empty or too long. It also returns an error if the value differs from an earlier
// value with the same ID.
func addNamed[T comparable](known map[string]T, all *[]T, id, name string, value T) error {
	switch before, found := known[id]; {
	case id == "" || name == "":
		return fmt.Errorf("an entry has no id or no name (%.64q)", id)
	case len(id) > maxNameBytes || len(name) > maxNameBytes:
		return fmt.Errorf("the id or the name of %.64q has more than %d bytes", id, maxNameBytes)
	case found && before != value:
		return fmt.Errorf("%.64q has two different entries", id)
	case !found:
		known[id] = value
		*all = append(*all, value)
	}
	return nil
}

// finish returns the contents without assignments on unknown projects or domains. It fails with
// [ErrIncomplete] if a list is empty or if the tree of projects is invalid.
func (c *collection) finish() (*Contents, error) {
	for list, n := range map[string]int{
		"domains":          len(c.Domains),
		"projects":         len(c.Projects), // at least the project of OpenStack's services
		"roles":            len(c.Roles),
		"role_assignments": c.scopes, // at least the assignment of the service user
	} {
		if n == 0 {
			return nil, incomplete(list, "the list is empty")
		}
	}
	if err := c.checkTree(); err != nil {
		return nil, incomplete("projects", "%v", err)
	}
	c.Assignments = slices.DeleteFunc(c.Assignments, func(a Assignment) bool {
		_, project := c.projects[a.ProjectID]
		_, domain := c.domains[a.DomainID]
		return !project && !domain
	})
	contents := c.Contents
	return &contents, nil
}

// checkTree returns an error if a project has an unknown domain or parent, or is its own ancestor.
func (c *collection) checkTree() error {
	reached := make(map[string]string, len(c.Projects)) // the start project from which each project was reached
	for _, start := range c.Projects {
		if _, known := c.domains[start.DomainID]; !known {
			return fmt.Errorf("the domain of %.64q is not in the list of domains", start.ID)
		}
		for at := start; ; {
			from, visited := reached[at.ID]
			if visited && from == start.ID {
				return fmt.Errorf("%.64q is its own ancestor", at.ID)
			}
			_, top := c.domains[at.ParentID]
			if visited || top || at.ParentID == "" {
				break
			}
			reached[at.ID] = start.ID
			parent, known := c.projects[at.ParentID]
			if !known {
				return fmt.Errorf("the parent of %.64q is not in the list of projects", at.ID)
			}
			at = parent
		}
	}
	return nil
}
