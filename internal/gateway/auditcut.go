// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// unauthenticatedText is the maximum size of each text in the event of an unauthenticated
// request, in bytes after JSON encoding.
const unauthenticatedText = 256

// textLimits are the maximum sizes of the texts in an event, in bytes after JSON encoding. Some
// characters need six bytes.
type textLimits struct {
	uri, text int
	// user is the maximum total size of a user's name, UID, groups and extras.
	user int
	// refWithoutURI specifies that the object reference is retained if the URI is cut. Otherwise
	// it is omitted, because it repeats parts of the URI.
	refWithoutURI bool
}

var (
	unauthenticatedTextLimits = textLimits{
		uri:  unauthenticatedText,
		text: unauthenticatedText,
		user: unauthenticatedText,
	}
	// The URI of an exec contains the arguments of the command. A valid name has at most 253 bytes.
	callerTextLimits = textLimits{
		uri:           4 << 10,
		text:          1 << 10,
		user:          8 << 10,
		refWithoutURI: true,
	}
)

// cutAuditAnnotation is the annotation that lists the fields of the event that the gateway cut
// because they were too long. A text that was cut ends with "...".
const cutAuditAnnotation = "gateway.kubetenant.dev/cut-fields"

// cutMark is the end of a text that was cut.
const cutMark = "..."

// cutter cuts texts and records which fields it cut.
type cutter struct{ fields []string }

func (c *cutter) cut(field string, text *string, maxBytes int) bool {
	short := cutTo(*text, maxBytes)
	if short == *text {
		return false
	}
	*text = short
	if !slices.Contains(c.fields, field) {
		c.fields = append(c.fields, field)
	}
	return true
}

// shortened returns a copy of an event in which texts that exceed their limit are cut. If no text
// exceeds its limit, it returns the event itself. It does not change the event.
func shortened(event *auditinternal.Event, limits textLimits) *auditinternal.Event {
	out := *event
	c := &cutter{}
	cutURI := c.cut("requestURI", &out.RequestURI, limits.uri)
	c.cut("verb", &out.Verb, limits.text)
	c.cut("userAgent", &out.UserAgent, limits.text)
	if cutURI && !limits.refWithoutURI {
		out.ObjectRef = nil
	}
	if out.ObjectRef != nil {
		ref := *out.ObjectRef
		for _, text := range []*string{
			&ref.Resource, &ref.Namespace, &ref.Name, &ref.APIGroup, &ref.APIVersion, &ref.Subresource,
		} {
			c.cut("objectRef", text, limits.text)
		}
		out.ObjectRef = &ref
	}
	if out.ResponseStatus != nil {
		status := *out.ResponseStatus
		if c.cut("responseStatus", &status.Message, limits.text) {
			status.Details = nil // the details repeat the message
		}
		out.ResponseStatus = &status
	}
	out.User = *c.user("user", &out.User, limits)
	if out.ImpersonatedUser != nil {
		out.ImpersonatedUser = c.user("impersonatedUser", out.ImpersonatedUser, limits)
	}
	out.Annotations = c.annotations(event.Annotations, limits.text)
	if len(c.fields) == 0 {
		return event
	}
	out.Annotations = maps.Clone(out.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[cutAuditAnnotation] = strings.Join(c.fields, ",")
	return &out
}

// annotations returns the annotations with values of at most maxBytes. It does not change the
// map.
func (c *cutter) annotations(all map[string]string, maxBytes int) map[string]string {
	out := all
	for key, value := range all {
		if !c.cut("annotations", &value, maxBytes) {
			continue
		}
		out = maps.Clone(out)
		out[key] = value
	}
	return out
}

// user returns a user whose texts together do not exceed the limit. If the texts are too long, it
// omits the extras, cuts the name and UID, and omits the groups that exceed the limit.
func (c *cutter) user(field string, u *authenticationv1.UserInfo, limits textLimits) *authenticationv1.UserInfo {
	size := encodedBytes(u.Username) + encodedBytes(u.UID)
	for _, group := range u.Groups {
		size += encodedBytes(group)
	}
	for key, values := range u.Extra {
		size += encodedBytes(key)
		for _, value := range values {
			size += encodedBytes(value)
		}
	}
	if size <= limits.user {
		return u
	}
	c.fields = append(c.fields, field)
	out := &authenticationv1.UserInfo{Username: cutTo(u.Username, limits.text), UID: cutTo(u.UID, limits.text)}
	left := limits.user - encodedBytes(out.Username) - encodedBytes(out.UID)
	for _, group := range u.Groups {
		if left -= encodedBytes(group); left < 0 {
			break
		}
		out.Groups = append(out.Groups, group)
	}
	return out
}

// cut returns a text, cut to at most unauthenticatedText bytes.
func cut(text string) string { return cutTo(text, unauthenticatedText) }

// cutTo returns a text, cut to an encoded size of at most maxBytes.
func cutTo(text string, maxBytes int) string {
	if encodedBytes(text) <= maxBytes {
		return text
	}
	size := 0
	for i := range len(text) {
		if size += encodedByte(text[i]); size > maxBytes-len(cutMark) {
			return text[:i] + cutMark
		}
	}
	return text
}

// encodedBytes returns an upper bound of the number of bytes that a text needs in a JSON string.
func encodedBytes(text string) (size int) {
	for i := range len(text) {
		size += encodedByte(text[i])
	}
	return size
}

func encodedByte(b byte) int {
	switch {
	case b == '"' || b == '\\':
		return 2
	case b < ' ' || b == '<' || b == '>' || b == '&' || b > '~':
		return len(`\u0000`)
	default:
		return 1
	}
}
