// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// sourceConfig is the configuration of one kind of source. Every pointer field of [Source] MUST
// implement it, because [Source.kinds] finds the kinds by reflection.
type sourceConfig interface {
	// setDefaults sets the defaults of unset fields of the kind and of the given source.
	setDefaults(src *Source)
	// validate returns the problems of the settings after setDefaults.
	validate(s *validatedSource) field.ErrorList
	// files returns pointers to the paths of the files that the settings name. A caller may replace
	// the paths.
	files() []*string
}

// validatedSource is a source during its validation.
type validatedSource struct {
	*Source
	kind string
	// path is the field path of the source, and own is the field path of its kind.
	path, own *field.Path
	// may contains the tenants that the source may assert.
	may     tenant.Set
	claimed *claimed
}

// kinds calls f with each kind that is set and the kind's JSON name. It returns the JSON names of
// all kinds, including those that are not set.
func (s *Source) kinds(f func(kind string, config sourceConfig)) (names []string) {
	for at, value := range reflect.ValueOf(s).Elem().Fields() {
		if at.Type.Kind() != reflect.Pointer {
			continue
		}
		name, _, _ := strings.Cut(at.Tag.Get("json"), ",")
		names = append(names, name)
		if !value.IsNil() {
			f(name, value.Interface().(sourceConfig))
		}
	}
	return names
}

// Kind returns the JSON name of the kind of a valid source.
func (s *Source) Kind() string {
	name := ""
	s.kinds(func(kind string, _ sourceConfig) { name = kind })
	return name
}

// validate returns the problems of a source and of its kind.
func (s *Source) validate(claimed *claimed, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	may, err := tenant.ParseSet(s.Tenants)
	if err != nil {
		errs = append(errs, field.Invalid(path.Child("tenants"), s.Tenants, err.Error()))
	}
	if len(s.Tenants) == 0 {
		errs = append(errs, field.Required(path.Child("tenants"), "must list the tenants that the source may assert"))
	}
	if strings.HasPrefix(s.UsernamePrefix, "system:") {
		errs = append(errs,
			field.Invalid(path.Child("usernamePrefix"), s.UsernamePrefix,
				"may not begin with system:, which would make every user name a reserved one"))
	}
	if strings.HasPrefix(s.GroupsPrefix, "system:") || strings.HasPrefix(s.GroupsPrefix, tenant.GroupPrefix) {
		errs = append(errs, field.Invalid(path.Child("groupsPrefix"), s.GroupsPrefix,
			"may not begin with system: or tenant:, which would make every group a reserved one"))
	}
	errs = append(errs, validateForm(s.UsernamePrefix, path.Child("usernamePrefix"))...)
	errs = append(errs, validateForm(s.GroupsPrefix, path.Child("groupsPrefix"))...)
	first := ""
	names := s.kinds(func(kind string, config sourceConfig) {
		own := path.Child(kind)
		if first != "" {
			errs = append(errs, field.Forbidden(own, "may not be set if "+first+" is set"))
			return
		}
		first = kind
		errs = append(errs, config.validate(&validatedSource{s, kind, path, own, may, claimed})...)
	})
	if first == "" {
		last := len(names) - 1
		errs = append(errs, field.Required(path,
			"must have exactly one of "+strings.Join(names[:last], ", ")+" or "+names[last]))
	}
	return errs
}

// claimed records the credentials that the sources validated so far claim. No two sources may claim
// the same credentials.
type claimed struct {
	issuers, prefixes map[string]string // values are the names of the sources
	opaque, keystone  string            // the names of the sources of opaque and of Keystone tokens
	synced            string            // the name of the source that has keystone.sync
	single            []string          // the found kinds of which only one source is allowed
	legacy            bool              // a serviceAccount source was found
}

// only records the kind of the source, of which there may be one source. It returns an error if an
// earlier source has the same kind.
func (s *validatedSource) only() field.ErrorList {
	if slices.Contains(s.claimed.single, s.kind) {
		return field.ErrorList{field.Forbidden(s.own, "only one source of this kind is allowed")}
	}
	s.claimed.single = append(s.claimed.single, s.kind)
	return nil
}

// issuer claims an issuer for the source. If issuer is empty, it does nothing.
func (s *validatedSource) issuer(issuer string, path *field.Path) field.ErrorList {
	if issuer == "" {
		return nil
	}
	if errs := validateIssuerForm(issuer, path); len(errs) > 0 {
		return errs
	}
	if by, taken := s.claimed.issuers[issuer]; taken {
		return field.ErrorList{field.Forbidden(path, "source "+by+" already has this issuer")}
	}
	s.claimed.issuers[issuer] = s.Name
	return nil
}

// validateIssuerForm rejects the older form of Google's issuer. A token with this issuer is treated
// as a token with the issuer https://accounts.google.com.
func validateIssuerForm(issuer string, path *field.Path) field.ErrorList {
	if issuer == "accounts.google.com" {
		return field.ErrorList{field.Invalid(path, issuer, "must be https://accounts.google.com")}
	}
	return nil
}

// match claims, for the source, the tokens that m matches.
func (s *validatedSource) match(m *TokenMatch) field.ErrorList {
	path := s.own.Child("match")
	opaque := ""
	if m.Opaque {
		opaque = "true"
	}
	errs := exactlyOne(path, "issuer", m.Issuer, "prefix", m.Prefix, "opaque", opaque)
	if m.Opaque && s.claimed.opaque != "" {
		errs = append(errs,
			field.Forbidden(path.Child("opaque"), "source "+s.claimed.opaque+" already accepts opaque tokens"))
	} else if m.Opaque {
		s.claimed.opaque = s.Name
	}
	if m.Prefix != "" {
		for prefix, by := range s.claimed.prefixes {
			if strings.HasPrefix(prefix, m.Prefix) || strings.HasPrefix(m.Prefix, prefix) {
				errs = append(errs, field.Forbidden(path.Child("prefix"), "overlaps with the prefix "+prefix+" of source "+by))
			}
		}
		s.claimed.prefixes[m.Prefix] = s.Name
	}
	return append(errs, s.issuer(m.Issuer, path.Child("issuer"))...)
}

// fedByTheAdmin sets the default tenants of a source whose identities the cluster's admin
// provides. The default is every tenant, including system.
func (s *Source) fedByTheAdmin() { defaultList(&s.Tenants, tenant.AnyName, tenant.System().String()) }

func (x *X509) setDefaults(src *Source) {
	src.fedByTheAdmin()
	defaultList(&x.SystemOrganizations, user.SystemPrivilegedGroup, "kubeadm:cluster-admins")
	defaultText(&x.OldFormat, OldFormatAllow)
}

func (x *X509) validate(s *validatedSource) field.ErrorList {
	var errs field.ErrorList
	if x.ClientCAFile == "" {
		errs = append(errs, field.Required(s.own.Child("clientCAFile"), "must name a file of PEM-encoded CA certificates"))
	}
	if x.OldFormat != OldFormatAllow && x.OldFormat != OldFormatDeny {
		errs = append(errs,
			field.NotSupported(s.own.Child("oldFormat"), x.OldFormat, []OldFormat{OldFormatAllow, OldFormatDeny}))
	}
	for i, name := range x.SystemUsers {
		if strings.Contains(name, ":") {
			errs = append(errs, field.Invalid(s.own.Child("systemUsers").Index(i), name,
				"must not contain a colon: the text before the colon of a common name is a tenant"))
		}
	}
	errs = append(errs, validateNames(x.SystemUsers, s.own.Child("systemUsers"))...)
	return append(errs, validateNames(x.SystemOrganizations, s.own.Child("systemOrganizations"))...)
}

func (x *X509) files() []*string { return []*string{&x.ClientCAFile} }

func (f *CredentialFile) setDefaults(src *Source) { src.fedByTheAdmin() }

// Default returns the tenant of a record that does not name a tenant. It returns the zero ID if
// DefaultTenant is empty or invalid. A record without a tenant is then invalid.
func (f *CredentialFile) Default() tenant.ID {
	id, _ := tenant.Parse(f.DefaultTenant) // valid or empty
	return id
}

func (f *CredentialFile) validate(s *validatedSource) field.ErrorList {
	var errs field.ErrorList
	if s.BasicAuthFile == f {
		errs = s.only()
	}
	if f.Path == "" {
		errs = append(errs, field.Required(s.own.Child("path"), ""))
	}
	return append(errs, validateTenant(f.DefaultTenant, s.may, s.own.Child("defaultTenant"))...)
}

func (f *CredentialFile) files() []*string { return []*string{&f.Path} }

func (*FrontProxy) setDefaults(*Source) {}

func (*FrontProxy) validate(s *validatedSource) field.ErrorList { return s.only() }

func (*FrontProxy) files() []*string { return nil }
