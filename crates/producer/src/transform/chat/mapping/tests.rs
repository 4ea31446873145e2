//! Messages under other names, and those that no name fits.

use super::*;

fn sharegpt() -> Mapping {
    let roles = [("human", "user"), ("gpt", "assistant")];
    Mapping {
        messages: "conversations".into(),
        role_key: "from".into(),
        content_key: "value".into(),
        roles: roles.map(|(a, b)| (a.to_owned(), b.to_owned())).into(),
        ..Mapping::from(("messages", "tools"))
    }
}

fn turns(mapping: &Mapping, document: &str) -> Result<String, String> {
    let document: Value = serde_json::from_str(document).unwrap();
    let turns = mapping.turns(&document).map_err(|why| why.to_string())?;
    Ok(serde_json::to_string(&turns).unwrap())
}

#[test]
fn other_names_become_roles_and_contents_in_their_places() {
    let document = r#"{"conversations":[{"from":"human","value":"q","id":7,"role":"x"},
        {"weight":0,"value":null,"from":"gpt"},{"from":"tool","value":"t"}]}"#;
    let wanted = r#"[{"role":"user","content":"q","id":7},{"weight":0,"content":null,"role":"assistant"},{"role":"tool","content":"t"}]"#;
    assert_eq!(turns(&sharegpt(), document).unwrap(), wanted);
    let plain = Mapping::from(("messages", "tools"));
    let list = r#"[{"role":"human","content":"q"}]"#;
    let text = serde_json::Value::from(list).to_string();
    for messages in [list, &text] {
        let document = format!("{{\"messages\":{messages}}}");
        assert_eq!(
            turns(&plain, &document).unwrap(),
            list,
            "as the template takes it"
        );
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let plain = Mapping::from(("messages", "tools"));
    let from = r#"[{"from":"human","value":"q"}]"#;
    for (mapping, document, wanted) in [
        (
            &plain,
            format!("{{\"conversations\":{from}}}"),
            "set chat.messages = \"conversations\", chat.role_key",
        ),
        (
            &plain,
            format!("{{\"messages\":{from}}}"),
            "has no \"role\" in message 1 and is in ShareGPT's form; set chat.role_key",
        ),
        (
            &plain,
            "{\"a\":1,\"b\":2}".to_owned(),
            "has no field \"messages\", only a, b; name the list",
        ),
        (&plain, "[1]".to_owned(), "is a sequence, not a JSON object"),
        (
            &sharegpt(),
            "{\"conversations\":[{\"role\":\"user\"}]}".to_owned(),
            "has no \"from\" in message 1, only role",
        ),
        (
            &sharegpt(),
            "{\"conversations\":[{\"from\":\"observation\",\"value\":\"\"}]}".to_owned(),
            "has the role \"observation\" in message 1, and the known ones are gpt, human, system, user, assistant, \
             tool, developer, function; add it to chat.roles",
        ),
    ] {
        let why = turns(mapping, &document).unwrap_err();
        assert!(why.contains(wanted), "{wanted} in {why}");
    }
}
