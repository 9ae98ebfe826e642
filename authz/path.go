package authz

import (
	"errors"
	"net/url"
	"strings"

	"github.com/kubetenant/kubetenant/tenant"
)

// errTenantPath is the 400 answer to every malformed tenant part: it repeats nothing of it.
var errTenantPath = errors.New("malformed tenant part in the path")

// tenantPath is the tenant part of a request's path. The zero value is none.
type tenantPath struct {
	id  tenant.ID // the tenant that the path names
	all bool      // the path names all tenants
}

func (p tenantPath) String() string {
	if p.all {
		return "all"
	}
	return p.id.String()
}

// cutTenantPath takes /tenants/<id> off a URL whose path goes on after it. It returns a nil URL
// where there is nothing to take off: such a path means what it always meant.
func cutTenantPath(u *url.URL) (tenantPath, *url.URL, error) {
	escaped, found := strings.CutPrefix(u.EscapedPath(), "/tenants/")
	if !found {
		return tenantPath{}, nil, nil
	}
	name, rest, found := strings.Cut(escaped, "/")
	if !found || rest == "" {
		return tenantPath{}, nil, nil
	}
	path := tenantPath{all: name == "all"}
	if !path.all {
		id, err := tenant.Parse(name) // an escape or a dot segment is no tenant
		if err != nil {
			return tenantPath{}, nil, errTenantPath
		}
		path.id = id
	}
	if first, _, _ := strings.Cut(rest, "/"); first == "tenants" || first == "" {
		return tenantPath{}, nil, errTenantPath
	}
	stripped := *u
	prefix := "/tenants/" + name
	stripped.Path = strings.TrimPrefix(u.Path, prefix)
	stripped.RawPath = strings.TrimPrefix(u.RawPath, prefix)
	return path, &stripped, nil
}
