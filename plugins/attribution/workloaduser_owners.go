package attribution

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

// earlier is what the templates had that stood there before, by their paths now.
type earlier map[string]*string

// wanted returns what must stand in a new Pod or template, nil for nothing.
func (p *plugin) wanted(
	ctx context.Context, c *caller, a admission.Attributes, is metav1.Object, d described, o admission.ObjectInterfaces,
) (*string, error) {
	value := supplied(d.meta)
	if c.controller && value != nil && p.maySupply(c, *value) == nil {
		return value, nil // before the caller is encoded: that is the way of every Pod of a ReplicaSet
	}
	mine, err := own(c)
	if err != nil {
		return nil, err
	}
	if value != nil {
		if *value == mine { // stamped before: plugins are asked again where a webhook changed the object
			return value, nil
		}
		err = p.maySupply(c, *value)
		switch {
		case err == nil:
			return value, nil
		case !c.controller && p.WorkloadUser.Restamp && d.path != "":
			return &mine, nil
		case !c.controller:
			return nil, err
		}
		owners, lookup := p.owners(ctx, a, is, d, o)
		switch {
		case lookup != nil:
			return nil, lookup
		case owners.value == nil || *owners.value != *value:
			return nil, err
		}
		return value, nil
	}
	if c.controller {
		owners, err := p.owners(ctx, a, is, d, o)
		// A template that differed from its owner's would be made anew for ever.
		if err != nil || owners.value != nil && d.path == "" || owners.found && d.path != "" {
			return owners.pods(d), err
		}
	}
	return &mine, nil
}

// inherited is what the owner of an object has.
type inherited struct {
	found bool
	value *string
}

// pods returns what a Pod takes over; a template is left as it is.
func (i inherited) pods(d described) *string {
	if d.path != "" {
		return nil
	}
	return i.value
}

// owners returns what the owner of a new object says in its template.
func (p *plugin) owners(
	ctx context.Context, a admission.Attributes, is metav1.Object, d described, o admission.ObjectInterfaces,
) (inherited, error) {
	owner, kind, err := p.maker(ctx, p.Objects, a, is)
	if err != nil || owner == nil {
		return inherited{}, err
	}
	templates, err := p.Kinds.Read(owner, kind, o)
	if err != nil || templates == nil {
		return inherited{found: true}, err
	}
	for _, t := range templates.Templates {
		// Where there are several, the one that says what the new object says.
		if value := supplied(t.Meta); value != nil {
			if has := supplied(d.meta); len(templates.Templates) == 1 || has != nil && *has == *value {
				return inherited{true, value}, nil
			}
		}
	}
	return inherited{found: true}, nil
}
