// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
)

// Keystone logs in as a user of an OpenStack cloud. The user is specified in a clouds.yaml file, or
// in the environment variables of an openrc file.
type Keystone struct {
	// Cloud is the name of a cloud in a clouds.yaml file. It defaults to $OS_CLOUD. If both are
	// empty, the other environment variables specify the user. File is the path of the clouds.yaml
	// file. If empty, the default locations are used.
	Cloud, File string
	// Environment returns the value of an environment variable.
	Environment func(string) string
	// Now returns the current time.
	Now func() time.Time

	options gophercloud.AuthOptions
	client  *http.Client
}

// ErrNoCloud reports that no Keystone server is configured.
var ErrNoCloud = errors.New("no Keystone server is configured: set OS_CLOUD and provide a clouds.yaml, or source an " +
	"openrc file (OS_AUTH_URL, OS_USERNAME, ...)")

// Read determines the user and the address of Keystone. The error may wrap [ErrNoCloud]. It
// contains no secret.
func (k *Keystone) Read() error {
	if k.Cloud == "" {
		k.Cloud = k.Environment("OS_CLOUD")
	}
	k.client = &http.Client{Timeout: httpTimeout}
	if k.Cloud != "" {
		var more []clouds.ParseOption
		more = append(more, clouds.WithCloudName(k.Cloud))
		if k.File != "" {
			more = append(more, clouds.WithLocations(k.File))
		}
		options, _, config, err := clouds.Parse(more...)
		if err != nil {
			return fmt.Errorf("cloud %q: %s", k.Cloud, cloudError(err))
		}
		k.options = options
		if err := k.checkAddress(); err != nil {
			return err
		}
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = config
		k.client.Transport = transport
		return nil
	}
	if k.Environment("OS_AUTH_URL") == "" {
		return ErrNoCloud
	}
	k.options = k.fromEnvironment()
	return k.checkAddress()
}

// yamlLine matches the position in an error of the YAML library.
var yamlLine = regexp.MustCompile(`yaml: (?:unmarshal errors: )?(line \d+):`)

// cloudError returns the text of an error about clouds.yaml or secure.yaml. The texts of the YAML
// library can contain values of the file, such as a password. They are reduced to the position.
func cloudError(err error) string {
	text := oneLine(err)
	if !strings.Contains(text, "yaml: ") { // such as a missing file or an unknown cloud
		return text
	}
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		return "clouds.yaml or secure.yaml is not valid at " + found[1]
	}
	return "clouds.yaml or secure.yaml is not valid"
}

// ErrUnencrypted reports that a password would be sent over the network unencrypted.
var ErrUnencrypted = errors.New(
	"the Keystone address must start with https:// (http:// is allowed for this machine only)",
)

// checkAddress returns an error if the password would be sent over the network unencrypted.
func (k *Keystone) checkAddress() error {
	u, err := url.Parse(k.options.IdentityEndpoint)
	if err != nil {
		return ErrUnencrypted
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()) {
		return nil
	}
	return ErrUnencrypted
}

// fromEnvironment reads the variables of an openrc file, version 3. It is used because the
// gophercloud library requires a project ID, but an openrc file may contain the project's name
// and domain instead.
func (k *Keystone) fromEnvironment() gophercloud.AuthOptions {
	first := func(names ...string) string {
		for _, name := range names {
			if value := k.Environment(name); value != "" {
				return value
			}
		}
		return ""
	}
	o := gophercloud.AuthOptions{
		IdentityEndpoint:            first("OS_AUTH_URL"),
		Username:                    first("OS_USERNAME"),
		UserID:                      first("OS_USER_ID"),
		Password:                    first("OS_PASSWORD"),
		DomainName:                  first("OS_USER_DOMAIN_NAME", "OS_DOMAIN_NAME"),
		DomainID:                    first("OS_USER_DOMAIN_ID", "OS_DOMAIN_ID"),
		ApplicationCredentialID:     first("OS_APPLICATION_CREDENTIAL_ID"),
		ApplicationCredentialName:   first("OS_APPLICATION_CREDENTIAL_NAME"),
		ApplicationCredentialSecret: first("OS_APPLICATION_CREDENTIAL_SECRET"),
	}
	if o.ApplicationCredentialID != "" { // the application credential determines the user and the project
		o.Username, o.UserID, o.Password, o.DomainName, o.DomainID = "", "", "", "", ""
		return o
	}
	id, name := first("OS_PROJECT_ID"), first("OS_PROJECT_NAME")
	if o.ApplicationCredentialSecret == "" && (id != "" || name != "") {
		o.Scope = &gophercloud.AuthScope{ProjectID: id}
		if id == "" {
			o.Scope = &gophercloud.AuthScope{
				ProjectName: name,
				DomainName:  first("OS_PROJECT_DOMAIN_NAME"),
				DomainID:    first("OS_PROJECT_DOMAIN_ID"),
			}
		}
	}
	return o
}

// Key returns the values that distinguish this user's tokens from other tokens. They contain no
// secret.
func (k *Keystone) Key() []string {
	o := &k.options
	key := []string{
		"keystone", o.IdentityEndpoint, o.UserID, o.Username, o.DomainID, o.DomainName, o.TenantID, o.TenantName,
		o.ApplicationCredentialID, o.ApplicationCredentialName,
	}
	if o.Scope != nil {
		key = append(key, o.Scope.ProjectID, o.Scope.ProjectName, o.Scope.DomainID, o.Scope.DomainName)
	}
	return key
}

// Token returns the stored token if it is still usable, otherwise a new token.
func (k *Keystone) Token(ctx context.Context, stored *Token) (*Token, error) {
	if stored.usable(k.Now()) {
		return stored, nil
	}
	provider, err := openstack.NewClient(k.options.IdentityEndpoint)
	if err != nil {
		return nil, fmt.Errorf("invalid Keystone address: %s", oneLine(err))
	}
	provider.HTTPClient = *k.client
	service, err := openstack.NewIdentityV3(provider, gophercloud.EndpointOpts{})
	if err != nil {
		return nil, fmt.Errorf("connect to Keystone at %s: %v", k.options.IdentityEndpoint, keystoneError(err))
	}
	answer := tokens.Create(ctx, service, &k.options)
	got, err := answer.ExtractToken()
	if err != nil {
		return nil, fmt.Errorf("log in to Keystone %s: %v", k.options.IdentityEndpoint, keystoneError(err))
	}
	return &Token{Token: got.ID, Expires: got.ExpiresAt.UTC()}, nil
}

// keystoneError returns the cause of an error as text. For an error response, the text contains
// only the status code, or that the credential was rejected.
func keystoneError(err error) string {
	var status gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &status) {
		if status.Actual == http.StatusUnauthorized {
			return "the credential was rejected"
		}
		return fmt.Sprintf("status %d", status.Actual)
	}
	return oneLine(err)
}
